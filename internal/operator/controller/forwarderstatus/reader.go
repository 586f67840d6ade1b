// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarderstatus

import (
	"context"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
)

const (
	// Port is where a forwarder serves /status.
	Port = 8081

	// streamTimeout is how long a stream may be silent, and how long its last state is valid after
	// it broke.
	streamTimeout = 25 * time.Second
	// settleTime is how long the set of forwarders must be stable before all hostnames are
	// notified: a rollout changes it repeatedly.
	settleTime = 10 * time.Second

	firstPause = 200 * time.Millisecond
	lastPause  = 5 * time.Second
	tick       = time.Second
)

// Pod is a forwarder's pod that is neither finished nor being deleted.
type Pod struct {
	UID, Name string
	IP        string // empty while it has none
	Ready     bool
}

// Pods watches the forwarders' pods; *PodWatch implements it.
type Pods interface {
	// Watch calls update with all pods at first and after each change, one call at a time, until ctx
	// is done.
	Watch(ctx context.Context, update func([]Pod)) error
}

// Objects are those of the installation.
type Objects interface {
	// Hostnames returns all hostnames.
	Hostnames(ctx context.Context) []string
	// OperatorUID returns the UID of the installation's KubernetesOperator, from which the token for
	// the forwarders' status is derived; empty while it is not known.
	OperatorUID(ctx context.Context) string
}

// Access is notified when Enforcement or Denied may have changed.
type Access interface {
	// Passed must not block.
	Passed(ctx context.Context)
}

// Options of a Reader. All are required but Access and Transport.
type Options struct {
	Pods    Pods
	Objects Objects
	// Now is notified of hostnames whose first status waits, Later of others.
	Now, Later notify.Listener
	Access     Access
	Transport  http.RoundTripper // Transport reaches the pods.
	Log        logr.Logger
}

// Reader reads the status of all forwarders. Its methods are safe for concurrent use.
type Reader struct {
	Options
	http *http.Client

	mu               sync.Mutex
	listed           bool                  // the pods are known
	synced           bool                  // each pod that was ready has reported, or is overdue
	byUID            map[string]*forwarder // every pod
	awaited          map[string]struct{}   // hostnames of NotifyOnChange
	counts           counts                // the last ones
	membersChangedAt time.Time             // when the set of forwarders last changed
	membersNotified  bool                  // whether all hostnames were notified of the current set
	edgeDownSince    time.Time             // since when not all forwarders have a session; zero: they have
}

// New returns a Reader; Start runs it.
func New(o Options) *Reader {
	if o.Transport == nil {
		o.Transport = NewTransport((&net.Dialer{Timeout: 5 * time.Second}).DialContext)
	}
	return &Reader{Options: o, byUID: map[string]*forwarder{}, awaited: map[string]struct{}{},
		http: &http.Client{Transport: o.Transport}}
}

// NewTransport returns a Transport whose connections dial opens.
func NewTransport(dial func(ctx context.Context, network, address string) (net.Conn, error)) http.RoundTripper {
	return &http.Transport{DialContext: dial, DisableKeepAlives: true, DisableCompression: true,
		ResponseHeaderTimeout: 10 * time.Second}
}

// Start reads until the context ends. An error means that the pods cannot be watched at all.
func (r *Reader) Start(ctx context.Context) error {
	var streams sync.WaitGroup
	defer streams.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	streams.Go(func() {
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				r.update(ctx, func() {})
			case <-ctx.Done():
				return
			}
		}
	})
	return r.Pods.Watch(ctx, func(pods []Pod) {
		r.update(ctx, func() { r.setPods(ctx, &streams, pods) })
	})
}

// setPods starts and stops streams. mu must be held.
func (r *Reader) setPods(ctx context.Context, streams *sync.WaitGroup, pods []Pod) {
	r.listed = true
	present := make(map[string]struct{}, len(pods))
	for _, pod := range pods {
		present[pod.UID] = struct{}{}
		f := r.byUID[pod.UID]
		if f != nil && f.pod.IP != pod.IP {
			f.stop()
			f = nil
		}
		if f == nil {
			f = &forwarder{pod: pod, stop: func() {}, lostAt: time.Now()}
			r.byUID[pod.UID] = f
			if pod.IP != "" {
				stream, stop := context.WithCancel(ctx)
				f.stop = stop
				streams.Go(func() { r.keepStream(stream, f, pod) })
			}
		}
		if pod.Ready && !f.pod.Ready && !f.reporting {
			f.lostAt = time.Now() // it has streamTimeout again to report
		}
		f.pod = pod
	}
	for uid, f := range r.byUID {
		if _, ok := present[uid]; !ok {
			f.stop()
			delete(r.byUID, uid)
		}
	}
}

// keepStream reads one forwarder's status, and reconnects when the stream breaks.
func (r *Reader) keepStream(ctx context.Context, f *forwarder, pod Pod) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		started := time.Now()
		err := r.readStream(ctx, f, pod)
		if ctx.Err() != nil {
			return
		}
		r.update(ctx, func() { f.streamBroke(err) })
		r.Log.V(1).Info("The status stream of a forwarder broke", "pod", pod.Name, "error", err.Error())
		if time.Since(started) > streamTimeout {
			pause = firstPause
		}
		if !timer.Sleep(ctx, pause/2+rand.N(pause/2)) {
			return
		}
	}
}

// update calls do with mu held, and then notifies the hostnames that it concerns.
func (r *Reader) update(ctx context.Context, do func()) {
	r.mu.Lock()
	do()
	all, now := r.detectChanges(time.Now())
	r.mu.Unlock()
	if all {
		r.Later.NotifyAll(r.Objects.Hostnames(ctx))
		if r.Access != nil {
			r.Access.Passed(ctx)
		}
	}
	r.Now.NotifyAll(now)
}

// detectChanges compares the forwarders with the last counts. It returns whether every hostname is
// concerned, and the hostnames to notify now. mu must be held.
func (r *Reader) detectChanges(now time.Time) (all bool, awaited []string) {
	last, next := r.counts, r.countForwarders(now)
	r.counts = next
	if next.members != last.members {
		r.membersChangedAt, r.membersNotified = now, false
	}
	if next.sessions == next.running && next.running > 0 {
		r.edgeDownSince = time.Time{}
	} else if r.edgeDownSince.IsZero() {
		r.edgeDownSince = now
	}
	if !r.synced && r.listed && next.pending == 0 {
		r.synced, all = true, true
	}
	if !r.synced {
		return false, nil
	}
	switch {
	case (next.running == 0) != (last.running == 0), (next.sessions == 0) != (last.sessions == 0):
		all = true
	case !r.membersNotified && now.Sub(r.membersChangedAt) >= settleTime:
		r.membersNotified, all = true, true
	}
	if all && next.running > 0 {
		for hostname := range r.awaited {
			awaited = append(awaited, hostname)
		}
		clear(r.awaited)
	}
	return all, awaited
}
