// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package saml

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/login"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// metadataServer serves an identity provider's metadata at a URL, and has the clock of a Provider
// that fetches it.
type metadataServer struct {
	t        *testing.T
	p        *Provider
	now      atomic.Int64 // seconds since today
	requests atomic.Int64
	answer   atomic.Value // string; "" = 500
	received chan struct{}
	gate     sync.Mutex // responses wait while it is locked
}

func startMetadataServer(t *testing.T, metadata string) *metadataServer {
	m := &metadataServer{t: t, received: make(chan struct{}, 64)}
	m.answer.Store(metadata)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		m.requests.Add(1)
		m.received <- struct{}{}
		m.gate.Lock()
		m.gate.Unlock() //nolint:staticcheck // it only waits
		s, _ := m.answer.Load().(string)
		if s == "" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, s)
	}))
	t.Cleanup(server.Close)
	p, err := newProvider(&trafficpolicy.LoginConfig{IdPMetadataURL: server.URL}, server.Client(), func() time.Time {
		return today.Add(time.Duration(m.now.Load()) * time.Second)
	})
	if err != nil {
		t.Fatal(err)
	}
	m.p = p
	return m
}

func (m *metadataServer) advance(d time.Duration) { m.now.Add(int64(d / time.Second)) }

// expectStart starts a login, and checks whether that succeeds and how many requests the URL has
// had so far.
func (m *metadataServer) expectStart(requests int64, succeeds bool) {
	m.t.Helper()
	_, err := m.p.StartFlow(m.t.Context(), &login.Flow{}, testAction)
	if (err == nil) != succeeds || m.requests.Load() != requests {
		m.t.Errorf("got %v after %d requests; want success: %t, after %d", err, m.requests.Load(), succeeds, requests)
	}
	var e *account.Error
	if err != nil && (!errors.As(err, &e) || e.Code != account.CodeProviderFailed ||
		strings.Contains(e.Msg, "127.0.0.1")) {
		m.t.Errorf("got %v, want ERR_FL_3016 and nothing of the cause", err)
	}
}

func TestMetadataSource_CachesAndRefreshes(t *testing.T) {
	t.Parallel()
	m := startMetadataServer(t, metadataOf(idpID, trustedSigner()))
	m.expectStart(1, true)
	m.advance(59 * time.Minute)
	m.expectStart(1, true)
	m.advance(time.Minute)
	m.expectStart(2, true)

	m.answer.Store("") // the cached metadata is used for a day, and the URL requested once a minute
	m.advance(time.Hour)
	m.expectStart(3, true)
	m.expectStart(3, true)
	m.advance(time.Minute)
	m.expectStart(4, true)
	m.advance(23 * time.Hour)
	m.expectStart(5, false)
	m.expectStart(5, false)

	m.answer.Store(metadataOf(idpID, trustedSigner()))
	m.expectStart(5, false)
	m.advance(time.Minute)
	m.expectStart(6, true)
}

func TestMetadataSource_FailsWithoutMetadata(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"status 500": "", "a page": "<html/>", "a document type": "<!DOCTYPE x>" + metadataOf(idpID, trustedSigner()),
		"huge": metadataOf(idpID, trustedSigner()) + strings.Repeat(" ", 2<<20),
		"over": strings.Replace(metadataOf(idpID, trustedSigner()), " entityID=",
			` validUntil="2031-11-20T11:59:59Z" entityID=`,
			1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := startMetadataServer(t, answer)
			m.expectStart(1, false)
			m.expectStart(1, false) // and no second request in the same minute
			if _, err := m.p.ConsumeResponse(t.Context(), post(validResponse().xml(t)),
				testAction); account.CodeOf(err) != account.CodeProviderFailed {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestMetadataSource_FetchesForNewKey fetches the metadata for a response signed with an unknown
// key, at most once a minute.
func TestMetadataSource_FetchesForNewKey(t *testing.T) {
	t.Parallel()
	m := startMetadataServer(t, metadataOf(idpID, otherSigner()))
	m.expectStart(1, true)
	m.answer.Store(metadataOf(idpID, otherSigner(), trustedSigner()))
	rotated := validResponse()
	if _, err := m.p.ConsumeResponse(t.Context(), post(rotated.xml(t)), testAction); err == nil ||
		m.requests.Load() != 1 {
		t.Fatalf("got %v after %d requests; want no request for each unknown key", err, m.requests.Load())
	}
	m.advance(time.Minute)
	if _, err := m.p.ConsumeResponse(t.Context(), post(rotated.xml(t)), testAction); err != nil ||
		m.requests.Load() != 2 {
		t.Fatalf("got %v after %d requests", err, m.requests.Load())
	}
}

// TestMetadataSource_RefusesOtherEntity refuses a response that is signed with a key from new
// metadata of another identity provider at the same URL.
func TestMetadataSource_RefusesOtherEntity(t *testing.T) {
	t.Parallel()
	m := startMetadataServer(t, metadataOf(idpID, otherSigner()))
	m.expectStart(1, true)
	m.answer.Store(metadataOf("https://other.example.com", trustedSigner()))
	m.advance(time.Minute)
	_, err := m.p.ConsumeResponse(t.Context(), post(validResponse().xml(t)), testAction)
	causeOf(t, err)
}

// TestMetadataSource_BlocksOneLoginOnly starts a second login with the cached metadata while the
// first one waits for the URL.
func TestMetadataSource_BlocksOneLoginOnly(t *testing.T) {
	t.Parallel()
	m := startMetadataServer(t, metadataOf(idpID, trustedSigner()))
	m.expectStart(1, true)
	<-m.received
	m.advance(refreshInterval)
	m.gate.Lock()
	started := make(chan error, 1)
	go func() {
		_, err := m.p.StartFlow(t.Context(), &login.Flow{}, testAction)
		started <- err
	}()
	<-m.received
	m.expectStart(2, true)
	m.gate.Unlock()
	if err := <-started; err != nil {
		t.Error(err)
	}
}

func TestMetadataSource_FetchesOnce(t *testing.T) {
	t.Parallel()
	m := startMetadataServer(t, metadataOf(idpID, trustedSigner()))
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := m.p.StartFlow(t.Context(), &login.Flow{}, testAction); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := m.requests.Load(); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}
