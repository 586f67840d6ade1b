// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package logbuffer collects the log of a program under test in memory.
//
// A test gives a Buffer to a slog handler and reads what was logged while the program runs.
package logbuffer

import (
	"bytes"
	"sync"
)

// Buffer is a writer whose text can be read at any time. The zero Buffer is empty; its methods are
// safe for concurrent use.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends p.
func (l *Buffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns what was written so far.
func (l *Buffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
