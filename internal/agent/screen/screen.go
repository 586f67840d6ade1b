// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package screen prints the agent's events: as readable lines, as one JSON object a line, or on a
// status screen (Live). Observe receives the events; text goes to a writer, usually standard output. A
// slow or stopped terminal never blocks the agent: Observe only queues, and when the queue is full,
// lines about single requests and connections are dropped and counted.
package screen

import (
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/agent"
)

const (
	maxQueue   = 1024            // beyond it, lines of little importance are dropped
	flushAtEnd = 1 * time.Second // how long Close waits for the writer
)

// Options change how a Screen prints.
type Options struct {
	JSON  bool
	Color bool
	Level slog.Level       // events of a lower level are not printed
	Now   func() time.Time // nil = time.Now
}

// timedEvent is an event and the time of its Observe. A positive dropped counts lost lines; then event
// is nil.
type timedEvent struct {
	time    time.Time
	event   agent.Event
	dropped int
}

// lines makes a line of an event: *text for people, jsonLines for programs.
type lines interface {
	line(e timedEvent) []byte // none for an event without a line
}

// Screen prints events in the order in which they were shown. Safe for concurrent use.
type Screen struct {
	out   io.Writer
	lines lines
	opt   Options
	done  chan struct{}
	wake  chan struct{}

	mu      sync.Mutex
	queue   []timedEvent
	dropped int
	closed  bool
}

// New starts a Screen; Close ends it.
func New(out io.Writer, opt Options) *Screen {
	return newScreen(out, opt, &text{color: opt.Color})
}

func newScreen(out io.Writer, opt Options, form *text) *Screen {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	s := &Screen{out: out, lines: form, opt: opt, done: make(chan struct{}), wake: make(chan struct{}, 1)}
	if opt.JSON {
		s.lines = jsonLines{}
	}
	go s.print()
	return s
}

// Observe queues an event and never blocks.
func (s *Screen) Observe(e agent.Event) {
	if levelOf(e) < s.opt.Level || !isShown(e) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if len(s.queue) >= maxQueue && isDroppable(e) {
		s.dropped++
		return
	}
	now := s.opt.Now()
	if s.dropped > 0 && len(s.queue) < maxQueue {
		s.queue = append(s.queue, timedEvent{time: now, dropped: s.dropped})
		s.dropped = 0
	}
	s.queue = append(s.queue, timedEvent{time: now, event: e})
	s.signal()
}

// Close prints the queued lines, unless the writer is stuck, and ends the Screen.
func (s *Screen) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		s.signal()
	}
	s.mu.Unlock()
	select {
	case <-s.done:
	case <-time.After(flushAtEnd):
	}
}

func (s *Screen) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// print writes until Close. A write error ends nothing: an agent whose terminal is gone serves on.
func (s *Screen) print() {
	defer close(s.done)
	for range s.wake {
		s.mu.Lock()
		batch, closed := s.queue, s.closed
		s.queue = nil
		if closed && s.dropped > 0 {
			batch = append(batch, timedEvent{time: s.opt.Now(), dropped: s.dropped})
		}
		s.mu.Unlock()
		for _, e := range batch {
			if line := s.lines.line(e); len(line) > 0 {
				_, _ = s.out.Write(line)
			}
		}
		if closed {
			return
		}
	}
}

// isShown reports whether an event has a line. Connections of http endpoints have none: their
// requests have.
func isShown(e agent.Event) bool {
	switch e := e.(type) {
	case agent.Latency:
		return false
	case agent.Connection:
		return !e.HTTP
	}
	return true
}

// isDroppable reports whether an event may be dropped: requests and connections are many.
func isDroppable(e agent.Event) bool {
	switch e.(type) {
	case agent.Request, agent.Connection:
		return true
	default:
		return false
	}
}

func levelOf(e agent.Event) slog.Level {
	switch e := e.(type) {
	case agent.Retrying, agent.BindRefused, agent.UpstreamDown, agent.CallFailed, agent.Unreachable,
		agent.HostRefused:
		return slog.LevelWarn
	case agent.SealProblem:
		if e.Cause != "" {
			return slog.LevelWarn
		}
	case agent.Stopped:
		if !e.ServerTold {
			return slog.LevelWarn
		}
	}
	return slog.LevelInfo
}
