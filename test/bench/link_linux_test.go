// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	nearIP, farIP = "10.99.0.2", "10.99.0.1"
	packetSize    = 1500
)

// link is a way between two network namespaces that has a delay, loses packets and has a rate, in each direction, and a queue of one bandwidth-delay
// product. A TUN device is at each end; this process carries the packets, because few kernels have netem.
type link struct {
	near, far string // the namespaces
	devices   [2]*os.File
	delay     time.Duration // one way
	rate      float64       // bytes a second

	mu   sync.Mutex
	loss float64
}

func newLink(b testing.TB, delay time.Duration, rate float64) *link {
	b.Helper()
	if os.Getuid() != 0 {
		b.Skip("the emulated link needs root: network namespaces and TUN devices")
	}
	l := &link{near: fmt.Sprintf("fl-near-%d", os.Getpid()), far: fmt.Sprintf("fl-far-%d", os.Getpid()), delay: delay, rate: rate}
	for i, end := range []struct{ ns, ip, peer string }{{l.near, nearIP, farIP}, {l.far, farIP, nearIP}} {
		device := fmt.Sprintf("fl%d-%d", i, os.Getpid())
		f, err := openTUN(device)
		if err != nil {
			b.Skipf("the emulated link needs TUN devices: %v", err)
		}
		l.devices[i] = f
		b.Cleanup(func() { _ = f.Close() })
		run(b, "ip netns add "+end.ns)
		b.Cleanup(func() { run(b, "ip netns del "+end.ns) })
		run(b, "ip link set "+device+" netns "+end.ns)
		run(b, "ip -n "+end.ns+" addr add "+end.ip+" peer "+end.peer+" dev "+device)
		run(b, "ip -n "+end.ns+" link set "+device+" up")
		run(b, "ip -n "+end.ns+" link set lo up")
	}
	go l.carry(l.devices[0], l.devices[1])
	go l.carry(l.devices[1], l.devices[0])
	return l
}

func openTUN(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	req, err := unix.NewIfreq(name)
	if err != nil {
		return nil, err
	}
	req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func run(b testing.TB, command string) {
	b.Helper()
	words := strings.Fields(command)
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		b.Fatalf("%s: %v: %s", command, err, out)
	}
}

func (l *link) setLoss(loss float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loss = loss
}

func (l *link) loses() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return rand.Float64() < l.loss
}

type packet struct {
	due time.Time
	b   []byte
}

// carry moves packets one way until the devices are closed.
func (l *link) carry(from, to *os.File) {
	most := 2 * l.delay // of waiting in the queue: one bandwidth-delay product
	way := make(chan packet, int(l.rate*(most+l.delay).Seconds())/100)
	defer close(way)
	go func() {
		for p := range way {
			time.Sleep(time.Until(p.due))
			_, _ = to.Write(p.b) // a device that is down drops it
		}
	}()
	free := time.Now() // when the line has sent what it was given
	for {
		b := make([]byte, packetSize)
		n, err := from.Read(b)
		if err != nil {
			return
		}
		now := time.Now()
		if free.Before(now) {
			free = now
		}
		if l.loses() || free.Sub(now) > most {
			continue
		}
		free = free.Add(time.Duration(float64(n) / l.rate * float64(time.Second)))
		select {
		case way <- packet{free.Add(l.delay), b[:n]}:
		default:
		}
	}
}
