// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// directPool sends requests without a body in their own goroutines. An http.Transport has two more
// for each connection, and waking them costs more than the request.
type directPool struct {
	upstreams *upstreams
	agent     Agent

	mu       sync.Mutex
	idle     []*directStream // idle has the most recently used stream last.
	expiring bool            // expiring is set while a timer is to call expireIdle.
}

// canSendDirectly reports whether a directPool may send the request. Headers have been validated where
// they came from.
func canSendDirectly(r *http.Request) bool {
	return isRetryable(r) && !r.Close && r.Header["Upgrade"] == nil && len(r.Trailer) == 0
}

// roundTrip sends a request, and once more where an idle stream ends without a byte of an answer.
func (p *directPool) roundTrip(r *http.Request) (*http.Response, *flusher, error) {
	for {
		s := p.take()
		reused := s != nil
		if !reused {
			opened, err := p.upstreams.openAgentStream(r.Context(), p.agent,
				tunnel.OpenHeader{Scheme: "http", BytesFollow: true})
			if err != nil {
				return nil, nil, err
			}
			s = &directStream{agentStream: opened, limit: io.LimitedReader{R: opened}, out: bufio.NewWriter(opened)}
			s.in = bufio.NewReader(&s.limit)
		}
		stop := context.AfterFunc(r.Context(), s.abort)
		res, err := s.roundTrip(r)
		if err == nil {
			body := &directBody{ReadCloser: res.Body, res: res, pool: p, stream: s, stopWatch: func() { stop() }}
			if res.Body == http.NoBody {
				body.end(true)
			} else {
				res.Body = body
			}
			return res, &s.flusher, nil
		}
		stop()
		s.abort()
		switch ended := r.Context().Err(); {
		case ended != nil:
			return nil, nil, ended
		case !reused || s.limit.N < maxResponseHeader || errors.Is(err, tunnel.ErrUnresponsive):
			return nil, nil, err
		}
	}
}

// take returns an idle stream, or nil.
func (p *directPool) take() *directStream {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := len(p.idle) - 1; n >= 0; n-- {
		s := p.idle[n]
		p.idle = slices.Delete(p.idle, n, n+1)
		if s.in.Buffered() == 0 && s.IsIdle() {
			return s
		}
		s.closeIdle()
	}
	return nil
}

// put makes a stream idle.
func (p *directPool) put(s *directStream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.agent.Context().Err() != nil || len(p.idle) == maxIdleStreams {
		s.closeIdle()
		return
	}
	s.idleSince = time.Now()
	if p.idle = append(p.idle, s); !p.expiring {
		p.expiring = true
		time.AfterFunc(idleTimeout, p.expireIdle)
	}
}

// expire closes the streams that were idle for so long.
func (p *directPool) expire(after time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.idle) > 0 && time.Since(p.idle[0].idleSince) >= after {
		p.idle[0].closeIdle()
		p.idle = slices.Delete(p.idle, 0, 1)
	}
	if p.expiring = len(p.idle) > 0; p.expiring {
		time.AfterFunc(time.Until(p.idle[0].idleSince.Add(idleTimeout)), p.expireIdle)
	}
}

func (p *directPool) expireIdle() { p.expire(idleTimeout) }

// directStream is a stream of a directPool.
type directStream struct {
	*agentStream
	limit     io.LimitedReader // limit bounds the header of an answer.
	in        *bufio.Reader
	out       *bufio.Writer
	idleSince time.Time
}

func (s *directStream) abort() { _ = s.Stream.Reset(tunnel.Aborted) }

// roundTrip sends a request and reads the header of its answer.
func (s *directStream) roundTrip(r *http.Request) (*http.Response, error) {
	var silent atomic.Bool
	defer watchSilence(s, 0, func(error) { silent.Store(true); s.abort() }, nil).stop()
	s.limit.N = maxResponseHeader
	err := errors.Join(r.Write(s.out), s.out.Flush())
	for err == nil {
		var res *http.Response
		if res, err = http.ReadResponse(s.in, r); err != nil {
			break
		}
		if res.StatusCode/100 != 1 || res.StatusCode == http.StatusSwitchingProtocols {
			s.limit.N = math.MaxInt64
			return res, nil
		}
		if trace := httptrace.ContextClientTrace(r.Context()); trace != nil && trace.Got1xxResponse != nil {
			err = trace.Got1xxResponse(res.StatusCode, textproto.MIMEHeader(res.Header))
		}
	}
	if silent.Load() {
		err = tunnel.ErrUnresponsive
	}
	return nil, err
}

// directBody is the body of an answer. Its end makes the stream idle.
type directBody struct {
	io.ReadCloser
	res       *http.Response
	pool      *directPool
	stream    *directStream      // stream is nil once the body has ended.
	stopWatch context.CancelFunc // stopWatch ends the watch of the request's context.
}

// Read reads the body.
func (b *directBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end(err == io.EOF) //nolint:errorlint // a Reader returns io.EOF itself
	}
	return n, err
}

// Close aborts a stream whose answer was not read to its end.
func (b *directBody) Close() error {
	b.end(false)
	return nil
}

// end ends the use of the stream, once.
func (b *directBody) end(complete bool) {
	s := b.stream
	if s == nil {
		return
	}
	b.stream = nil
	b.stopWatch()
	s.flusher.set(nil)
	reusable := complete && !b.res.Close && b.res.StatusCode >= http.StatusOK
	if reusable && b.res.Request.Context().Err() == nil { // else the watch may still abort it
		b.pool.put(s)
	} else {
		_ = s.Stream.Close() // an abort, unless both directions have ended
	}
}
