// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// stuck is a writer that blocks until released, like a stopped terminal.
type stuck struct {
	entered chan struct{}
	release chan struct{}
	out     bytes.Buffer
}

func (w *stuck) Write(p []byte) (int, error) {
	select {
	case w.entered <- struct{}{}:
	default:
	}
	<-w.release
	return w.out.Write(p)
}

func TestScreen_StoppedTerminalDropsMinorLinesOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // Close waits a while for the terminal, which a busy machine exceeds
		w := &stuck{entered: make(chan struct{}, 1), release: make(chan struct{})}
		s := New(w, Options{Now: noon, JSON: true})
		s.Observe(agent.Starting{})
		<-w.entered
		for range maxQueue + 500 {
			s.Observe(agent.Request{Method: "GET"})
		}
		s.Observe(agent.Draining{})
		close(w.release)
		s.Close()
		counts := map[string]int{}
		dropped := 0
		for line := range strings.Lines(w.out.String()) {
			var r record
			must.Succeed(t, json.Unmarshal([]byte(line), &r))
			counts[r.Event]++
			dropped += r.Dropped
		}
		if counts["draining"] != 1 || counts["request"] != maxQueue || dropped != 500 {
			t.Errorf("printed %v and %d dropped; want the state line, %d requests and 500 dropped", counts, dropped,
				maxQueue)
		}
	})
}

func TestScreen_CloseWithStuckTerminal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &stuck{entered: make(chan struct{}, 1), release: make(chan struct{})}
		s := New(w, Options{Now: noon})
		s.Observe(agent.Starting{})
		start := time.Now()
		s.Close()
		if took := time.Since(start); took != flushAtEnd {
			t.Errorf("Close took %v", took)
		}
		s.Observe(agent.Draining{}) // after Close: ignored, no panic
		close(w.release)
	})
}

func TestScreen_SurvivesFailingWriter(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	_ = r.Close()
	s := New(w, Options{Now: noon})
	s.Observe(agent.Starting{})
	s.Observe(agent.Stopped{})
	s.Close()
	select {
	case <-s.done:
	default:
		t.Error("the screen did not end")
	}
}
