// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
)

// sealInterval is how often the certificates of sealed endpoints are looked at.
const sealInterval = 10 * time.Second

// watchSeals checks the certificates of sealed endpoints until ctx is done.
func (t *endpointSet) watchSeals(ctx context.Context) {
	defer t.opt.reportPanic()
	for next := true; next; next = timer.Sleep(ctx, sealInterval) {
		t.mu.Lock()
		endpoints := slices.Clone(t.order)
		t.mu.Unlock()
		for _, e := range endpoints {
			t.checkSeal(e)
		}
	}
}

// checkSeal reports a change of the problem of a sealed endpoint's certificate, and binds the endpoint
// again if the certificate has another key.
func (t *endpointSet) checkSeal(e *endpoint) {
	t.checkingSeal.Lock() // so that what was read last is reported last
	defer t.checkingSeal.Unlock()
	t.mu.Lock()
	s := e.spec
	t.mu.Unlock()
	if s.Seal == nil {
		return
	}
	var cause string
	if err := s.Seal.Problem(s.URL); err != nil { // reads files
		cause = err.Error()
	}
	read := newSpec(s.Endpoint)
	t.mu.Lock()
	current := e.spec == s && !e.removed // else Set was called meanwhile, and the next look is better
	news := current && e.sealProblem != cause
	if news {
		e.sealProblem = cause
	}
	if current && read.info.SealKey != s.info.SealKey && e.update(read) {
		t.enqueue(e)
	}
	t.mu.Unlock()
	if news {
		t.opt.Observer.Observe(SealProblem{EndpointInfo: read.info, Cause: cause})
	}
}
