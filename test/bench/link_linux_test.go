// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The addresses of the ends: the chain's, and those that the connection without a chain has to
// itself.
const (
	nearIP, farIP             = "10.99.0.2", "10.99.0.1"
	directNearIP, directFarIP = "10.99.0.4", "10.99.0.3"
)

const (
	packetSize = 1500
	// earliness is how long before its time a packet may leave: those that are due together leave
	// together, without a sleep between them.
	earliness = 50 * time.Microsecond
)

// emulatedLink is a way between two network namespaces that has a delay, loses packets and has a
// rate, in each direction, and a queue of one bandwidth-delay product. A TUN device is at each end;
// this process carries the packets, because few kernels have netem.
type emulatedLink struct {
	near, far string // the namespaces
	devices   [2]*os.File
	delay     time.Duration // one way
	rate      float64       // bytes a second
	loss      float64
	fullest   [2]atomic.Int64 // bytes of the second in which most were delivered, by direction
}

// newLink makes a link whose ends have the congestion control that is named. Without bbr no
// connection can have another one, which the kernel sees to; with it only the direct connections
// have it from the beginning, and the chain has to ask.
func newLink(b testing.TB, congestion string, delay time.Duration, rate, loss float64) *emulatedLink {
	b.Helper()
	removeStale()
	l := &emulatedLink{near: fmt.Sprintf("fl-near-%d", os.Getpid()), far: fmt.Sprintf("fl-far-%d", os.Getpid()),
		delay: delay,
		rate:  rate, loss: loss}
	ofChain, ofDirect := "lock "+congestion, "lock "+congestion
	if congestion == bbr {
		ofChain, ofDirect = cubic, bbr
	}
	for i, end := range []struct{ ns, ip, peer, direct, directPeer string }{
		{l.near, nearIP, farIP, directNearIP, directFarIP}, {l.far, farIP, nearIP, directFarIP, directNearIP},
	} {
		device := fmt.Sprintf("fl%d-%d", i, os.Getpid())
		f, err := openTUN(device)
		if err != nil {
			b.Fatalf("making a TUN device: %v", err)
		}
		l.devices[i] = f
		b.Cleanup(func() { _ = f.Close() })
		run(b, "ip netns add "+end.ns)
		b.Cleanup(func() { run(b, "ip netns del "+end.ns) })
		run(b, "ip link set "+device+" netns "+end.ns)
		run(b, "ip -n "+end.ns+" link set "+device+" up")
		run(b, "ip -n "+end.ns+" link set lo up")
		for _, a := range []struct {
			ip, peer, congestion string
		}{{end.ip, end.peer, ofChain}, {end.direct, end.directPeer, ofDirect}} {
			run(b, "ip -n "+end.ns+" addr add "+a.ip+" peer "+a.peer+" dev "+device)
			run(b, "ip -n "+end.ns+" route replace "+a.peer+" dev "+device+" proto kernel scope link src "+a.ip+
				" congctl "+
				a.congestion)
		}
	}
	go l.carry(l.devices[0], l.devices[1], &l.fullest[0])
	go l.carry(l.devices[1], l.devices[0], &l.fullest[1])
	return l
}

// removeStale removes the namespaces of runs that were killed: those with the id of a process that
// is no more.
func removeStale() {
	ours := regexp.MustCompile(`^fl-(?:near|far)-(\d+)$`)
	there, _ := os.ReadDir("/run/netns") // without it there are none
	for _, ns := range there {
		m := ours.FindStringSubmatch(ns.Name())
		if m == nil {
			continue
		}
		if pid, err := strconv.Atoi(m[1]); err != nil || !errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			continue
		}
		progress("removing the namespace %s of a run that was killed", ns.Name())
		if out, err := exec.Command("ip", "netns", "del", ns.Name()).CombinedOutput(); err != nil {
			progress("removing the namespace %s: %v: %s", ns.Name(), err, out) // another run may have done it
		}
	}
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

// fullestSecond returns how much of its rate the link has delivered at most within a second since
// it was last asked, in percent.
func (l *emulatedLink) fullestSecond() float64 {
	return 100 * float64(max(l.fullest[0].Swap(0), l.fullest[1].Swap(0))) / l.rate
}

type packet struct {
	due time.Time
	b   *[packetSize]byte
	n   int
}

// carry moves packets one way until the devices are closed.
func (l *emulatedLink) carry(from, to *os.File, fullest *atomic.Int64) {
	most := 2 * l.delay // of waiting in the queue: one bandwidth-delay product
	way := make(chan packet, int(l.rate*(most+l.delay).Seconds())/100)
	buffers := sync.Pool{New: func() any { return new([packetSize]byte) }}
	defer close(way)
	go func() {
		second, bytes := int64(0), int64(0)
		for p := range way {
			now := time.Now()
			if wait := p.due.Sub(now); wait > earliness {
				time.Sleep(wait)
				now = time.Now()
			}
			_, _ = to.Write(p.b[:p.n]) // a device that is down drops it
			if now.Unix() != second {
				second, bytes = now.Unix(), 0
			}
			bytes += int64(p.n)
			fullest.Store(max(bytes, fullest.Load())) // that a query between the two is lost does no harm
			buffers.Put(p.b)
		}
	}()
	free := time.Now() // when the line has sent what it was given
	for {
		b := buffers.Get().(*[packetSize]byte)
		n, err := from.Read(b[:])
		if err != nil {
			return
		}
		now := time.Now()
		if free.Before(now) {
			free = now
		}
		if rand.Float64() < l.loss || free.Sub(now) > most {
			continue
		}
		free = free.Add(time.Duration(float64(n) / l.rate * float64(time.Second)))
		select {
		case way <- packet{free.Add(l.delay), b, n}:
		default:
		}
	}
}
