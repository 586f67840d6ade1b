// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/sealed"
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
	var text bytes.Buffer
	for range 100 {
		u.warn(slog.New(slog.NewTextHandler(&text, nil)), "db", errors.New("no"))
	}
	if lines := strings.Count(text.String(), "\n"); lines < 1 || lines > 3 || u.failures.Load() < 90 {
		t.Errorf("%d lines, %d failures are left: %s", lines, u.failures.Load(), &text)
	}
}
