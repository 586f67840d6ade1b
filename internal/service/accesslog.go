// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/edge"
)

// Limits of the access log.
const (
	accessLogQueue = 4096 // lines that wait for the writer; further ones are dropped and counted
	maxLoggedText  = 2048 // bytes of a text that a client chooses
)

// accessLine is one line of the access log. It has no header, no query and no body: those hold
// secrets.
type accessLine struct {
	Time     time.Time `json:"time"`
	Endpoint string    `json:"endpoint"`
	Account  string    `json:"account"`
	ClientIP string    `json:"client_ip,omitempty"`
	Operator string    `json:"operator,omitempty"`
	// Credential is that of a client of `fairlead connect`.
	Credential string       `json:"credential,omitempty"`
	Pod        string       `json:"pod,omitempty"` // namespace/name
	Method     string       `json:"method,omitempty"`
	Host       string       `json:"host,omitempty"`
	Path       string       `json:"path,omitempty"`
	Status     int          `json:"status,omitempty"`
	Code       account.Code `json:"code,omitempty"`
	BytesIn    int64        `json:"bytes_in"`
	BytesOut   int64        `json:"bytes_out"`
	Millis     float64      `json:"duration_ms"`
	Backend    string       `json:"backend,omitempty"`
	TraceID    string       `json:"trace_id,omitempty"`
}

// accessLog writes a line of JSON for every request and connection, or for a share of them. Nothing
// waits for it: lines that the disk is too slow for are dropped and counted.
type accessLog struct {
	sample  float64
	to      string
	log     *slog.Logger
	lines   chan accessLine
	closing chan struct{}
	done    sync.WaitGroup
	dropped atomic.Int64
}

// openAccessLog opens the log and begins to write it. to is a file, "-" for standard output or
// "stderr"; a value from reopen opens the file again, after it was moved away.
func openAccessLog(to string, sample float64, reopen <-chan os.Signal, log *slog.Logger) (*accessLog, error) {
	l := &accessLog{to: to, sample: sample, log: log, lines: make(chan accessLine, accessLogQueue),
		closing: make(chan struct{})}
	out, err := l.open()
	if err != nil {
		return nil, fmt.Errorf("--access-log %q: %w", to, err)
	}
	l.done.Go(func() { l.write(out, reopen) })
	return l, nil
}

func (l *accessLog) open() (*os.File, error) {
	switch l.to {
	case "-":
		return os.Stdout, nil
	case "stderr":
		return os.Stderr, nil
	}
	return os.OpenFile(l.to, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
}

// close writes the queued lines and ends.
func (l *accessLog) close() {
	close(l.closing)
	l.done.Wait()
}

// write writes lines until close. A file that cannot be opened anew stays the old one.
func (l *accessLog) write(out *os.File, reopen <-chan os.Signal) {
	buffered := bufio.NewWriterSize(out, 64<<10)
	encoder := json.NewEncoder(buffered)
	encoder.SetEscapeHTML(false)
	failing := false
	note := func(err error) {
		if err != nil {
			l.dropped.Add(1)
			if !failing {
				l.log.Error("the access log cannot be written", "err", err)
			}
			buffered.Reset(out) // a bufio.Writer keeps its first error
		}
		failing = err != nil
	}
	for ending := false; !ending; {
		select {
		case line := <-l.lines:
			note(encoder.Encode(line))
		case <-reopen:
			note(buffered.Flush())
			if anew, err := l.open(); err != nil {
				l.log.Error("the access log cannot be opened anew", "err", err)
			} else {
				l.closeFile(out)
				out = anew
				buffered.Reset(out)
				l.log.Info("the access log is opened anew")
			}
		case <-l.closing:
			ending = true
		}
		for waiting := true; waiting && ending; {
			select {
			case line := <-l.lines:
				note(encoder.Encode(line))
			default:
				waiting = false
			}
		}
		if len(l.lines) == 0 && buffered.Buffered() > 0 {
			note(buffered.Flush())
		}
	}
	l.closeFile(out)
}

func (l *accessLog) closeFile(f *os.File) {
	if f != os.Stdout && f != os.Stderr {
		_ = f.Close()
	}
}

// record logs a finished request or connection if it is in the sample; errors are always logged.
func (l *accessLog) record(s *edge.RequestRecord) {
	failed := s.Code != "" || s.Status >= 500
	if !failed && l.sample < 1 && rand.Float64() >= l.sample {
		return
	}
	in, out := s.Traffic.Totals()
	line := accessLine{
		Time: s.StartedAt.UTC(), Endpoint: s.Endpoint.ID, Account: s.Endpoint.AccountID, Operator: s.Client.OperatorID,
		Credential: s.Client.CredentialID, Status: s.Status, Code: s.Code,
		BytesIn: in, BytesOut: out, Millis: float64(s.Duration.Microseconds()) / 1000, Backend: s.BackendID,
		TraceID: truncate(s.Client.TraceID, 64),
	}
	if s.Client.ClientIP.IsValid() {
		line.ClientIP = s.Client.ClientIP.String()
	}
	if pod := s.Client.StatedPod; pod != nil {
		line.Pod = truncate(pod.Namespace+"/"+pod.Name, 512)
	}
	if r := s.Request; r != nil {
		line.Method, line.Host, line.Path = truncate(r.Method, 32), truncate(r.Host, 256),
			truncate(r.URL.EscapedPath(), maxLoggedText)
		if id := traceID(r.Header.Get("Traceparent")); id != "" {
			line.TraceID = id
		}
	}
	select {
	case l.lines <- line:
	default:
		l.dropped.Add(1)
	}
}

// truncate copies a text, so that no request's buffer is kept, and shortens it.
func truncate(s string, most int) string { return strings.Clone(s[:min(len(s), most)]) }

// traceID returns the trace id of a traceparent header (W3C Trace Context); "" for an invalid one.
func traceID(parent string) string {
	const version, id = 3, 32
	if len(parent) < version+id+1 || parent[version+id] != '-' {
		return ""
	}
	for _, c := range []byte(parent[version : version+id]) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return ""
		}
	}
	return truncate(parent[version:version+id], id)
}
