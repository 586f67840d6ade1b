// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	pipeSize    = 256 << 10
	pipeSizeMin = 64 << 10 // with less, copying is cheaper

	// maxPipes bounds the pipes in use at a time. All processes of an unprivileged user can have
	// 64 MiB of pipes; beyond, the kernel gives each two pages, and then one.
	maxPipes = 128
)

// pipe is a pipe that splice(2) moves bytes through.
type pipe struct {
	out, in int // file descriptors to read from and to write to
	cleanup runtime.Cleanup
}

var (
	pipes      sync.Pool // pipes holds empty ones; those that the garbage collector drops are closed.
	pipesInUse atomic.Int32
)

// takePipe returns an empty pipe, or nil if there are none left.
func takePipe() *pipe {
	if pipesInUse.Add(1) <= maxPipes {
		if p, ok := pipes.Get().(*pipe); ok {
			return p
		}
		if p := newPipe(); p != nil {
			return p
		}
	}
	pipesInUse.Add(-1)
	return nil
}

// newPipe returns nil if the system has no pipe of at least pipeSizeMin.
func newPipe() *pipe {
	var fds [2]int
	if unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK) != nil {
		return nil
	}
	size, err := unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, pipeSize)
	if err != nil {
		size, err = unix.FcntlInt(uintptr(fds[1]), unix.F_GETPIPE_SZ, 0)
	}
	if err != nil || size < pipeSizeMin {
		closePipe(fds)
		return nil
	}
	p := &pipe{out: fds[0], in: fds[1]}
	p.cleanup = runtime.AddCleanup(p, closePipe, fds)
	return p
}

func closePipe(fds [2]int) { _, _ = unix.Close(fds[0]), unix.Close(fds[1]) }

// release returns an empty pipe to the pool, and closes any other.
func (p *pipe) release(empty bool) {
	if empty {
		pipes.Put(p)
	} else {
		p.cleanup.Stop()
		closePipe([2]int{p.out, p.in})
	}
	pipesInUse.Add(-1)
}
