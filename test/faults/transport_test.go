// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// transport wraps the HTTP transport to the API server.
type transport = func(http.RoundTripper) http.RoundTripper

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip calls f.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// isWrite reports whether the request writes an object that the faults concern.
func isWrite(r *http.Request) bool {
	return r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/events") &&
		!strings.Contains(r.URL.Path, "/leases")
}

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }

// counter counts the writes that reach the API server.
type counter struct{ writes atomic.Int64 }

func (c *counter) transport(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if isWrite(r) {
			c.writes.Add(1)
		}
		return next.RoundTrip(r)
	})
}

// quietSince returns a check that fails when something was written since its last call.
func (c *counter) quietSince(last *int) func() error {
	return func() error {
		before, now := *last, int(c.writes.Load())
		*last = now
		if before != now {
			return fmt.Errorf("%d writes, and then %d", before, now)
		}
		return nil
	}
}

var errKilled = errors.New("the process was killed")

// killAt ends the process with the k-th write: that one is applied, its answer and all that follows
// are lost.
func killAt(k int64, kill func()) (t transport, killed *atomic.Bool) {
	var writes atomic.Int64
	killed = &atomic.Bool{}
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if killed.Load() {
				return nil, errKilled
			}
			if !isWrite(r) {
				return next.RoundTrip(r)
			}
			n := writes.Add(1)
			if n > k {
				return nil, errKilled // concurrent with the k-th
			}
			res, err := next.RoundTrip(r)
			if n < k {
				return res, err
			}
			killed.Store(true)
			if err == nil {
				_ = res.Body.Close()
			}
			kill()
			return nil, errKilled
		})
	}, killed
}

// answer is a fault's response in place of the API server's.
type answer struct {
	name   string
	code   int // 0: a time-out
	reason metav1.StatusReason
}

// everyNth gives the answer to every n-th write, which is applied or not.
func everyNth(n int64, a answer, applied bool) transport {
	var writes atomic.Int64
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if !isWrite(r) || writes.Add(1)%n != 0 {
				return next.RoundTrip(r)
			}
			if applied {
				res, err := next.RoundTrip(r)
				if err != nil {
					return nil, err
				}
				_ = res.Body.Close()
			}
			if a.code == 0 {
				return nil, errors.New("net/http: timeout awaiting response headers")
			}
			return a.response(r), nil
		})
	}
}

func (a answer) response(r *http.Request) *http.Response {
	body := fmt.Sprintf(
		`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":"a fault"}`,
		a.reason, a.code)
	return &http.Response{
		StatusCode: a.code, Status: http.StatusText(a.code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Request: r,
		Header:  http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
	}
}

// watches passes the body of every watch through wrap, with a random source of its own.
func watches(seed uint64, wrap func(io.ReadCloser, *rand.Rand) io.ReadCloser) transport {
	var n atomic.Uint64
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			res, err := next.RoundTrip(r)
			if err == nil && isWatch(r) {
				res.Body = wrap(res.Body, rand.New(rand.NewPCG(seed, n.Add(1))))
			}
			return res, err
		})
	}
}

// slowBody delays each piece of a watch's response by up to limit.
type slowBody struct {
	io.ReadCloser
	rng   *rand.Rand
	limit time.Duration
}

func (s *slowBody) Read(b []byte) (int, error) {
	n, err := s.ReadCloser.Read(b)
	time.Sleep(time.Duration(s.rng.Int64N(int64(s.limit))))
	return n, err
}

// truncatedBody breaks a watch off after a random number of pieces, whose last is lost, or after a
// second.
type truncatedBody struct {
	io.ReadCloser
	mu   sync.Mutex
	left int
}

func newTruncatedBody(body io.ReadCloser, rng *rand.Rand) io.ReadCloser {
	c := &truncatedBody{ReadCloser: body, left: 1 + rng.IntN(4)}
	time.AfterFunc(200*time.Millisecond+time.Duration(rng.IntN(800))*time.Millisecond, func() { _ = body.Close() })
	return c
}

func (c *truncatedBody) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left--; c.left < 0 {
		_ = c.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}
