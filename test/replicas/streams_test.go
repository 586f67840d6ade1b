// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// streamTick is how often the upstream writes to each stream.
const streamTick = 5 * time.Millisecond

// The paths of the upstream's streams, of which each line names the time when it was written.
const (
	eventsPath    = "/events"
	websocketPath = "/websocket"
	downloadPath  = "/download"
)

// serveUpstream answers /hello at once, writes streams until they end, and answers anything else
// with the id of the person who logged in.
func serveUpstream(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/hello":
		_, _ = io.WriteString(w, "hello")
	case eventsPath:
		w.Header().Set("Content-Type", "text/event-stream")
		writeStream(r.Context(), w, http.NewResponseController(w).Flush, 0)
	case downloadPath:
		writeStream(r.Context(), w, http.NewResponseController(w).Flush, 8<<10)
	case websocketPath:
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn,
			"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		ctx, cancel := context.WithCancel(context.Background())
		go func() { defer cancel(); _, _ = io.Copy(io.Discard, conn) }()
		writeStream(ctx, conn, func() error { return nil }, 0)
	default:
		_, _ = io.WriteString(w, r.Header.Get("Fairlead-Auth-User-Id"))
	}
}

// writeStream writes lines with the time, padded, until ctx is done or writing fails.
func writeStream(ctx context.Context, w io.Writer, flush func() error, padding int) {
	tick := time.NewTicker(streamTick)
	defer tick.Stop()
	for ctx.Err() == nil {
		if _, err := fmt.Fprintf(w, "data: %d %s\n", time.Now().UnixNano(), strings.Repeat("x", padding)); err != nil {
			return
		}
		if flush() != nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// stream is an open stream of a client.
type stream struct {
	path  string
	first chan struct{} // closed by the first line
	ended chan struct{} // closed by its end

	mu      sync.Mutex
	written time.Time // when the upstream wrote the last line that came
	lines   int
	endedAt time.Time
}

// readStream reads a stream to its end.
func readStream(path string, from io.ReadCloser) *stream {
	s := &stream{path: path, first: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		defer func() { _ = from.Close() }()
		in := bufio.NewReader(from)
		for {
			line, err := in.ReadString('\n')
			s.mu.Lock()
			if err != nil {
				s.endedAt = time.Now()
				s.mu.Unlock()
				return
			}
			fields := strings.Fields(line)
			if len(fields) > 1 && fields[0] == "data:" {
				if n, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
					s.written = time.Unix(0, n)
				}
				if s.lines++; s.lines == 1 {
					close(s.first)
				}
			}
			s.mu.Unlock()
		}
	}()
	return s
}

// progress returns how many lines came, and when the last of them was written.
func (s *stream) progress() (lines int, written time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines, s.written
}

// end returns when the stream has ended; it must have.
func (s *stream) end() time.Time {
	<-s.ended
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endedAt
}
