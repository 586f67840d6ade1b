// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// TestSealedHTTP_EndsOnRolls holds that the end of the agent, the server or the forwarder finishes what is
// being answered, with an answer that asks for the connection's end, and ends connections that are idle.
func TestSealedHTTP_EndsOnRolls(t *testing.T) { overBothPaths(t, testSealedHTTPEndsOnRolls) }

func testSealedHTTPEndsOnRolls(t *testing.T) {
	for name, stop := range map[string]func(*site){
		"agent": func(s *site) { s.stop() }, "server": func(s *site) { s.Stop() },
		"forwarder": func(s *site) { must.Succeed(s.t, s.relay.Sessions.Live().Drain(time.Minute)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began, goOn := make(chan struct{}), make(chan struct{})
			s := newSite(t, func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					close(began)
					<-goOn
				}
			}, nil)
			idle := s.callAt(apiURL, s.id, s.trust)
			_, err := io.WriteString(idle, "GET / HTTP/1.1\r\nHost: api.demo\r\n\r\n")
			must.Succeed(t, err)
			buffered := bufio.NewReader(idle)
			res, err := http.ReadResponse(buffered, nil)
			if err != nil || res.Close {
				t.Fatalf("%+v, %v", res, err)
			}
			slow := make(chan bool, 1)
			go func() {
				res, _, err := s.do("GET", "/slow", nil)
				slow <- err == nil && res.Close
			}()
			servicetest.Receive(t, began, "request")
			stop(s)
			if _, err := buffered.ReadByte(); !isEOF(err) {
				t.Errorf("an idle connection ended with %v", err)
			}
			close(goOn)
			if !servicetest.Receive(t, slow, "answer") {
				t.Error("the last answer broke off, or does not ask for the connection's end")
			}
		})
	}
}

// TestSealedHTTP_GoesAwayOnRolls holds that an HTTP/2 connection without a request gets GOAWAY when its agent
// stops, and that one with a stream finishes it.
func TestSealedHTTP_GoesAwayOnRolls(t *testing.T) { overBothPaths(t, testSealedHTTPGoesAwayOnRolls) }

func testSealedHTTPGoesAwayOnRolls(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
		close(began)
		<-goOn
		_, _ = io.WriteString(w, "whole")
	}, nil)
	transport := s.client.Transport.(*http.Transport)
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetUnencryptedHTTP2(true)
	answer := make(chan string, 1)
	go func() {
		_, text, err := s.do("GET", "/", nil)
		answer <- fmt.Sprint(text, err)
	}()
	servicetest.Receive(t, began, "request")
	idle := s.callAt(apiURL, s.id, s.trust)
	_, err := io.WriteString(idle, http2.ClientPreface)
	frames := http2.NewFramer(idle, idle)
	must.Succeed(t, errors.Join(err, frames.WriteSettings()))
	_, err = frames.ReadFrame()
	must.Succeed(t, err)
	s.stop()
	for away := false; ; {
		f, err := frames.ReadFrame()
		if goAway, ok := f.(*http2.GoAwayFrame); ok {
			away = goAway.ErrCode == http2.ErrCodeNo
		}
		if err != nil {
			if !away || !isEOF(err) {
				t.Errorf("an idle connection ended with %v, GOAWAY %t", err, away)
			}
			break
		}
	}
	close(goOn)
	if got := servicetest.Receive(t, answer, "answer"); got != "whole<nil>" {
		t.Errorf("the stream ended with %q", got)
	}
}

// TestSealedHTTP_RollLosesNoRequest holds that calls over kept connections go on at another member of the
// pool when one ends.
func TestSealedHTTP_RollLosesNoRequest(t *testing.T) {
	overBothPaths(t, testSealedHTTPRollLosesNoRequest)
}

func testSealedHTTPRollLosesNoRequest(t *testing.T) {
	s := newSite(t, digestOf, nil)
	s.serveHTTP("in-b", nil)
	done := make(chan struct{})
	var working sync.WaitGroup
	for range 4 {
		working.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				res, got, err := s.do("POST", "/", struct{ io.Reader }{strings.NewReader("no client repeats it")})
				if err != nil || res.StatusCode != 200 {
					t.Errorf("request %d: %s %q, %v", n, res.Status, got, err)
					return
				}
			}
		})
	}
	for s.calls.Load() < 4 {
		servicetest.Receive(t, s.requests, "report")
	}
	s.stop()
	before := s.calls.Load()
	for s.calls.Load() == before { // a connection of the agent that has ended is replaced
		servicetest.Receive(t, s.requests, "report")
	}
	for range 200 {
		servicetest.Receive(t, s.requests, "report")
	}
	close(done)
	working.Wait()
}
