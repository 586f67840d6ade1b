// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarderstatus

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/statustoken"
	"github.com/fairlead-dev/fairlead/test/support/pipelistener"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const operatorUID = "0a7e1c1e-8f0c-4a43-9d2f-4f6f3f0b7d11"

// pod is a forwarder whose responses the test sets.
type pod struct {
	lines       chan string // of its response; closed: the stream ends
	unreachable bool
}

// harness is a Reader with pods, inside a bubble.
type harness struct {
	*Reader
	t    *testing.T
	set  chan []Pod
	byIP sync.Map

	mu            sync.Mutex
	prompt, later []string
}

func runReader(t *testing.T, test func(h *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &harness{t: t, set: make(chan []Pod)}
		h.Reader = New(Options{
			Pods: h, Objects: h, Now: recorded{h, &h.prompt}, Later: recorded{h, &h.later},
			Transport: NewTransport(h.dial), Log: logr.Discard(),
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- h.Start(ctx) }()
		test(h)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Watch implements Pods.
func (h *harness) Watch(ctx context.Context, update func([]Pod)) error {
	for {
		select {
		case pods := <-h.set:
			update(pods)
		case <-ctx.Done():
			return nil
		}
	}
}

// Hostnames and OperatorUID implement Objects.
func (h *harness) Hostnames(context.Context) []string { return []string{"all"} }
func (h *harness) OperatorUID(context.Context) string { return operatorUID }

// recorded appends the names that it is notified of.
type recorded struct {
	*harness
	to *[]string
}

func (r recorded) NotifyAll(names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*r.to = append(*r.to, names...)
}

// notified returns, once all goroutines are idle, the notifications since the last call.
func (h *harness) notified() (prompt, later []string) {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	prompt, later = h.prompt, h.later
	h.prompt, h.later = nil, nil
	slices.Sort(later)
	return prompt, slices.Compact(later)
}

// dial reaches the pod's own HTTP server over a pipe.
func (h *harness) dial(_ context.Context, _, address string) (net.Conn, error) {
	ip, port, err := net.SplitHostPort(address)
	if err != nil || port != "8081" {
		h.t.Errorf("dialled %s", address)
	}
	v, ok := h.byIP.Load(ip)
	if !ok || v.(*pod).unreachable {
		return nil, errors.New("connection refused")
	}
	ours, theirs := net.Pipe()
	ln := pipelistener.New()
	go ln.Offer(theirs)
	server := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		v.(*pod).serve(ip, rw, r) // pods are named as their addresses
	})}
	server.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateClosed {
			_ = ln.Close()
		}
	}
	go func() { _ = server.Serve(ln) }()
	return ours, nil
}

func (p *pod) serve(name string, rw http.ResponseWriter, r *http.Request) {
	if r.URL.String() != "/status?watch=true" || !statustoken.Valid(r, statustoken.Derive(operatorUID, name)) {
		http.NotFound(rw, r)
		return
	}
	rw.WriteHeader(http.StatusOK)
	for {
		_ = http.NewResponseController(rw).Flush()
		select {
		case text, ok := <-p.lines:
			if !ok {
				return
			}
			_, _ = rw.Write([]byte(text + "\n"))
		case <-r.Context().Done():
			return
		}
	}
}

// pod makes a forwarder that can be reached at the address.
func (h *harness) pod(ip string) *pod {
	p := &pod{lines: make(chan string)}
	h.byIP.Store(ip, p)
	return p
}

// keepAlive keeps the pods' streams alive for a while.
func keepAlive(d time.Duration, pods ...*pod) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(min(5*time.Second, time.Until(end)))
		for _, p := range pods {
			p.lines <- "{}"
		}
	}
}
