// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/closedport"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

func TestEdge_UpgradedConnectionHalfCloses(t *testing.T) {
	t.Parallel()
	p := servicetest.NewPath(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" || !strings.EqualFold(r.Header.Get("Connection"), "upgrade") {
			http.Error(w, "no upgrade", http.StatusBadRequest)
			return
		}
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c,
			"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: "+
				"x\r\n\r\n")
		_, _ = io.Copy(c, rw)
		_, _ = io.WriteString(c, "bye")
	})
	st := p.Forwarder.Open(servicetest.OpenHeader(t, p.Bound))
	_, _ = io.WriteString(st,
		"GET /chat HTTP/1.1\r\nHost: hello.demo\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: "+
			"k\r\n\r\n")
	in := bufio.NewReader(st)
	res, err := http.ReadResponse(in, nil) //nolint:bodyclose // 101 has none
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Sec-WebSocket-Accept") != "x" {
		t.Fatalf("answer %v %v", res, err)
	}
	if line := servicetest.Receive(t, p.Agent.Lines, "request line"); line.Status != 101 || line.Path != "/chat" {
		t.Errorf("request line %+v, want it while the connection lives", line)
	}
	for i := range 3 {
		msg := fmt.Sprintf("message %d\n", i)
		_, _ = io.WriteString(st, msg)
		if got, err := in.ReadString('\n'); err != nil || got != msg {
			t.Fatalf("echo %q %v", got, err)
		}
	}
	must.Succeed(t, st.CloseWrite())
	if rest := servicetest.ReadAll(t, in); rest != "bye" {
		t.Errorf("after the half-close came %q", rest)
	}
}

func TestEdge_StreamsServerSentEvents(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	p := servicetest.NewPath(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush()
			<-next
		}
	})
	res := p.Forwarder.Do(p.Transport, "GET", "http://hello.demo/events", nil, nil)
	in := bufio.NewReader(res.Body)
	for i := range 3 {
		line, err := in.ReadString('\n')
		if err != nil || line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("event %q %v", line, err)
		}
		_, _ = in.ReadString('\n')
		next <- struct{}{}
	}
}

func TestEdge_FlushesAnswerAsItComes(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"http1", "http2"} {
		for _, length := range []string{"", "6"} {
			t.Run(protocol+" length "+length, func(t *testing.T) {
				t.Parallel()
				next := make(chan struct{})
				p := servicetest.NewPath(t, func(w http.ResponseWriter, r *http.Request) {
					if length != "" {
						w.Header().Set("Content-Length", length)
					}
					for _, piece := range []string{"", "abc", "def"} {
						_, _ = io.WriteString(w, piece)
						_ = http.NewResponseController(w).Flush()
						select {
						case <-next:
						case <-r.Context().Done():
						}
					}
				}, func(b *tunnel.Bind) { b.UpstreamProtocol = protocol })
				goOn := func() {
					select {
					case next <- struct{}{}:
					case <-servicetest.Context(t).Done():
						t.Fatal("the upstream does not go on")
					}
				}
				for range 2 { // over a stream that is new, and over one that was used
					res := p.Forwarder.Do(p.Transport, "GET", "http://hello.demo/", nil, nil)
					goOn()
					for _, want := range []string{"abc", "def"} {
						var got [3]byte
						if _, err := io.ReadFull(res.Body, got[:]); err != nil || string(got[:]) != want {
							t.Fatalf("%q came, %v; want %q", got, err, want)
						}
						goOn()
					}
					if rest := servicetest.ReadAll(t, res.Body); rest != "" {
						t.Errorf("%q came, too", rest)
					}
				}
			})
		}
	}
}

func TestEdge_PassesTrailers(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"http1", "http2"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			got := make(chan http.Header, 1)
			p := servicetest.NewPath(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				got <- r.Trailer
				w.Header().Set("Trailer", "X-Announced")
				_, _ = io.WriteString(w, "body")
				w.Header().Set("X-Announced", "one")
				w.Header().Set(http.TrailerPrefix+"X-Late", "two")
			}, func(b *tunnel.Bind) { b.UpstreamProtocol = protocol })
			tr := p.Forwarder.Transport(p.Bound, func(ps *http.Protocols) {
				ps.SetHTTP1(protocol == "http1")
				ps.SetUnencryptedHTTP2(protocol == "http2")
			})
			req, err := http.NewRequestWithContext(servicetest.Context(t), "POST", "http://hello.demo/",
				io.MultiReader(strings.NewReader("chunked")))
			must.Succeed(t, err)
			req.Trailer = http.Header{"X-Request-Sum": {"three"}}
			res, err := tr.RoundTrip(req)
			must.Succeed(t, err)
			defer res.Body.Close()
			if body := servicetest.ReadAll(t, res.Body); body != "body" || res.Trailer.Get("X-Announced") != "one" ||
				res.Trailer.Get("X-Late") != "two" {
				t.Errorf("body %q, trailers %v", body, res.Trailer)
			}
			if sum := servicetest.Receive(t, got, "request").Get("X-Request-Sum"); sum != "three" {
				t.Errorf("the upstream got trailer %q", sum)
			}
		})
	}
}

func TestEdge_PassesExpect100Continue(t *testing.T) {
	t.Parallel()
	p := servicetest.NewPath(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusExpectationFailed)
			return
		}
		_, _ = io.Copy(w, r.Body)
	})
	ask := func(path string) (*tunnel.Stream, *bufio.Reader, string) {
		st := p.Forwarder.Open(servicetest.OpenHeader(t, p.Bound))
		_, _ = fmt.Fprintf(st,
			"PUT %s HTTP/1.1\r\nHost: hello.demo\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n",
			path)
		in := bufio.NewReader(st)
		line, err := in.ReadString('\n')
		must.Succeed(t, err)
		return st, in, strings.TrimSpace(line)
	}
	if _, _, status := ask("/no"); status != "HTTP/1.1 417 Expectation Failed" {
		t.Errorf("an upstream that does not want the body: %s", status)
	}
	st, in, status := ask("/yes")
	if status != "HTTP/1.1 100 Continue" {
		t.Fatalf("an upstream that wants the body: %s", status)
	}
	_, _ = in.ReadString('\n')
	_, _ = io.WriteString(st, "body")
	res, err := http.ReadResponse(in, nil) //nolint:bodyclose // what it reads from is closed
	// on a slow machine the edge has waited long enough, and the upstream's own follows
	for err == nil && res.StatusCode == http.StatusContinue {
		res, err = http.ReadResponse(in, nil) //nolint:bodyclose // likewise
	}
	must.Succeed(t, err)
	if got := servicetest.ReadAll(t, res.Body); got != "body" {
		t.Errorf("echo %q", got)
	}
}

// noise is size bytes that differ everywhere, hashed as they are read.
func noise(size int64, h hash.Hash) io.Reader {
	return io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{1}), size), h)
}

func TestEdge_PassesLargeBodiesBothWays(t *testing.T) {
	t.Parallel()
	for protocol, large := range map[string]int64{"http1": 64 << 20, "http2": 16 << 20} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			// An echo: the answer begins long before the request has ended.
			p := servicetest.NewPath(t, func(w http.ResponseWriter, r *http.Request) {
				if r.ProtoMajor == 1 {
					_ = http.NewResponseController(w).EnableFullDuplex()
				}
				_, _ = io.Copy(w, r.Body)
			}, func(b *tunnel.Bind) { b.UpstreamProtocol = protocol })
			tr := p.Forwarder.Transport(p.Bound, func(ps *http.Protocols) {
				ps.SetHTTP1(protocol == "http1")
				ps.SetUnencryptedHTTP2(protocol == "http2")
			})
			sent, got := sha256.New(), sha256.New()
			res := p.Forwarder.Do(tr, "POST", "http://hello.demo/", noise(large, sent), nil)
			n, err := io.Copy(got, res.Body)
			if err != nil || n != large || !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
				t.Errorf("%d of %d bytes came back, equal %v, %v", n, large, bytes.Equal(sent.Sum(nil), got.Sum(nil)),
					err)
			}
		})
	}
}

func TestEdge_ForwardsHTTP2(t *testing.T) {
	t.Parallel()
	p := servicetest.NewPath(t, func(w http.ResponseWriter, r *http.Request) {
		// A conversation, as gRPC has them: each line is answered before the next is sent.
		in := bufio.NewReader(r.Body)
		_ = http.NewResponseController(w).Flush()
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = fmt.Fprintf(w, "%s %s", r.Proto, line)
			_ = http.NewResponseController(w).Flush()
		}
	}, func(b *tunnel.Bind) { b.UpstreamProtocol = "http2" })
	tr := p.Forwarder.Transport(p.Bound, func(ps *http.Protocols) { ps.SetUnencryptedHTTP2(true) })
	r, w := io.Pipe()
	res := p.Forwarder.Do(tr, "POST", "http://hello.demo/", r, nil)
	in := bufio.NewReader(res.Body)
	for i := range 3 {
		_, _ = fmt.Fprintf(w, "line %d\n", i)
		if got, err := in.ReadString('\n'); err != nil || got != fmt.Sprintf("HTTP/2.0 line %d\n", i) {
			t.Fatalf("%q %v", got, err)
		}
	}
	_ = w.Close()
	if rest := servicetest.ReadAll(t, in); rest != "" || res.ProtoMajor != 2 {
		t.Errorf("rest %q, protocol %s", rest, res.Proto)
	}
}

// TestEdge_EndsEmptyHTTP2AnswersWithTheirHeader checks that an answer whose header ends the stream
// stays one: gRPC clients take an empty DATA frame behind a status for a broken answer.
func TestEdge_EndsEmptyHTTP2AnswersWithTheirHeader(t *testing.T) {
	t.Parallel()
	p := servicetest.NewPath(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Length"] = nil // net/http would send one
		switch r.URL.Path {
		case "/status":
			w.Header().Set("Grpc-Status", "9")
		case "/nothing":
			w.WriteHeader(http.StatusNoContent)
		case "/unchanged":
			w.Header().Set("Content-Length", "5") // of what a 200 would have carried
			w.WriteHeader(http.StatusNotModified)
		}
	}, func(b *tunnel.Bind) { b.UpstreamProtocol = "http2" })
	tr := p.Forwarder.Transport(p.Bound, func(ps *http.Protocols) { ps.SetUnencryptedHTTP2(true) })
	for path, want := range map[string]int{"/status": http.StatusOK, "/nothing": http.StatusNoContent} {
		res := p.Forwarder.Do(tr, "GET", "http://hello.demo"+path, nil, nil)
		if res.StatusCode != want || res.ContentLength != 0 { // -1: the stream goes on behind the header
			t.Errorf("%s: %d of length %d, want %d and the end of the stream", path, res.StatusCode, res.ContentLength,
				want)
		}
		if path == "/status" && res.Header.Get("Grpc-Status") != "9" {
			t.Errorf("the header came as %v", res.Header)
		}
	}
	res := p.Forwarder.Do(p.Transport, "GET", "http://hello.demo/unchanged", nil, nil)
	if body := servicetest.ReadAll(t, res.Body); body != "" || res.StatusCode != http.StatusNotModified {
		t.Errorf("/unchanged: %d %q", res.StatusCode, body)
	}
}

func TestEdge_AnswersHTTP2WithPageWhenAgentIsGone(t *testing.T) {
	t.Parallel()
	p := servicetest.NewPathTo(t, servicetest.Start(t), closedport.Reserve(t), func(b *tunnel.Bind) {
		b.UpstreamProtocol = "http2"
	})
	tr := p.Forwarder.Transport(p.Bound, func(ps *http.Protocols) { ps.SetUnencryptedHTTP2(true) })
	res := p.Forwarder.Do(tr, "GET", "http://hello.demo/", nil, nil)
	checkJSONPage(t, res, 502, "ERR_FL_3002", "could not connect")
	p.Agent.Stop()
	res = p.Forwarder.Do(tr, "GET", "http://hello.demo/", nil, nil)
	checkJSONPage(t, res, 503, "ERR_FL_3001", "is offline")
}
