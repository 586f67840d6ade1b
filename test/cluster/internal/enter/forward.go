// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package enter

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/test/cluster/internal/state"
)

// aliveInterval is how often Forward looks whether the node still runs.
const aliveInterval = 500 * time.Millisecond

// Forward connects what l accepts to a TCP address of the node's network, written as numbers, until
// ctx ends or the node does. It closes l. The error is that of ctx, or names the cluster that
// ended.
func Forward(ctx context.Context, l net.Listener, c *state.Cluster, addr string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	go func() {
		for tick := time.NewTicker(aliveInterval); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				if !c.Alive() {
					cancel(fmt.Errorf("the cluster %s has ended", c.Name))
				}
			}
		}
	}()
	for {
		in, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return err
		}
		go func() {
			if err := forwardConn(ctx, in, c.PID, addr); err != nil {
				fmt.Fprintln(os.Stderr, "cluster:", err)
			}
		}()
	}
}

// forwardConn copies both ways between in and a new connection inside. It closes in.
func forwardConn(ctx context.Context, in net.Conn, pid int, addr string) error {
	defer func() { _ = in.Close() }()
	out, err := dial(ctx, pid, addr)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	defer context.AfterFunc(ctx, func() { _, _ = in.Close(), out.Close() })()
	var both sync.WaitGroup
	for dst, src := range map[net.Conn]net.Conn{in: out, out: in} {
		both.Go(func() {
			_, _ = io.Copy(dst, src) // a broken connection is an ended one
			_ = dst.(*net.TCPConn).CloseWrite()
		})
	}
	both.Wait()
	return nil
}

// dial connects to a TCP address of a process's network. A socket belongs to the namespace of the
// thread that makes it.
func dial(ctx context.Context, pid int, addr string) (conn net.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if err = join(pid); err == nil {
			conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}
	}()
	<-done
	return conn, err
}
