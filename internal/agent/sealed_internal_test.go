// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/test/support/sealtest"
)

// abortedStream is a stream that can only be aborted.
type abortedStream struct {
	sealed.Below
	aborted bool
}

func (s *abortedStream) Abort() error { s.aborted = true; return nil }

// TestUnsealed_Bounded holds that callers who cannot seal cost the agent no more than so many
// connections at a time, and a line of its log a second.
func TestUnsealed_Bounded(t *testing.T) {
	t.Parallel()
	u, st := newUnsealed(), &abortedStream{}
	u.accepting.Store(maxUnsealed)
	if _, err := u.accept(t.Context(), nil, st); err == nil || !st.aborted || u.accepting.Load() != maxUnsealed {
		t.Errorf("one too many: %v, %d are accepted", err, u.accepting.Load())
	}
	u.spares.Store(maxUnsealed)
	v := &streamServer{unsealed: u}
	if err := v.awaitClient(t.Context(), nil, nil, nil); err == nil || u.spares.Load() != maxUnsealed {
		t.Errorf("one more spare: %v", err)
	}
	var text bytes.Buffer
	for range 100 {
		u.warn(slog.New(slog.NewTextHandler(&text, nil)), "db", errors.New("no"))
	}
	if lines := strings.Count(text.String(), "\n"); lines < 1 || lines > 3 || u.failures.Load() < 90 {
		t.Errorf("%d lines, %d failures are left: %s", lines, u.failures.Load(), &text)
	}
}

// drainable is a SealedServer that records Drain.
type drainable struct {
	SealedServer
	drained bool
}

func (d *drainable) Drain() { d.drained = true }

// TestEndpoint_DrainsFormerVersions holds that each version of a sealed endpoint which has served is
// drained once there is another one, bound or not, and that the same version stays the same upstream.
func TestEndpoint_DrainsFormerVersions(t *testing.T) {
	t.Parallel()
	identity := sealtest.NewOwner(t, "ac-1").Identity(account.EndpointURL{Scheme: "tcp", Host: "db.demo", Port: 1})
	version := func(name string, by *drainable) *spec {
		return newSpec(Endpoint{Name: name, Seal: identity, SealedServer: by})
	}
	bound, refused, last := &drainable{}, &drainable{}, &drainable{}
	first := version("bound", bound)
	e := &endpoint{spec: first, bound: first}
	e.update(version("refused", refused))
	if !bound.drained || e.serving().SealedServer != SealedServer(refused) {
		t.Error("the version that was bound goes on")
	}
	e.update(version("last", last))
	serving := e.serving()
	e.update(version("last", last))
	if !refused.drained || last.drained || e.serving() != serving {
		t.Error("the version that was never bound goes on, or the last one does not")
	}
}
