// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

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
