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

// metadataServer is an identity provider's metadata at a URL, and the time.
type metadataServer struct {
	t      *testing.T
	p      *Provider
	now    atomic.Int64 // seconds since today
	asked  atomic.Int64
	answer atomic.Value // string; "" = 500
	hit    chan struct{}
	hold   sync.Mutex // answers wait for it
}

func startMetadataServer(t *testing.T, metadata string) *metadataServer {
	m := &metadataServer{t: t, hit: make(chan struct{}, 64)}
	m.answer.Store(metadata)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		m.asked.Add(1)
		m.hit <- struct{}{}
		m.hold.Lock()
		m.hold.Unlock() //nolint:staticcheck // it only waits
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

// expect starts a login and checks how often the URL has been fetched until then.
func (m *metadataServer) expect(asked int64, works bool) {
	m.t.Helper()
	_, err := m.p.StartFlow(m.t.Context(), &login.Flow{}, place)
	if (err == nil) != works || m.asked.Load() != asked {
		m.t.Errorf("got %v after asking %d times; want it to work: %t, after %d", err, m.asked.Load(), works, asked)
	}
	var e *account.Error
	if err != nil && (!errors.As(err, &e) || e.Code != account.CodeProviderFailed ||
		strings.Contains(e.Msg, "127.0.0.1")) {
		m.t.Errorf("got %v, want ERR_FL_3016 and nothing of the cause", err)
	}
}

func TestMetadataSource_CachesAndRefreshes(t *testing.T) {
	t.Parallel()
	m := startMetadataServer(t, metadataOf(idpID, ours()))
	m.expect(1, true)
	m.advance(59 * time.Minute)
	m.expect(1, true)
	m.advance(time.Minute)
	m.expect(2, true)

	m.answer.Store("") // it breaks: what is known serves a day, and the URL is asked once a minute
	m.advance(time.Hour)
	m.expect(3, true)
	m.expect(3, true)
	m.advance(time.Minute)
	m.expect(4, true)
	m.advance(23 * time.Hour)
	m.expect(5, false)
	m.expect(5, false)

	m.answer.Store(metadataOf(idpID, ours()))
	m.expect(5, false)
	m.advance(time.Minute)
	m.expect(6, true)
}

func TestMetadataSource_FailsWithoutMetadata(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"status 500": "", "a page": "<html/>", "a document type": "<!DOCTYPE x>" + metadataOf(idpID, ours()),
		"huge": metadataOf(idpID, ours()) + strings.Repeat(" ", 2<<20),
		"over": strings.Replace(metadataOf(idpID, ours()), " entityID=", ` validUntil="2031-11-20T11:59:59Z" entityID=`,
			1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := startMetadataServer(t, answer)
			m.expect(1, false)
			m.expect(1, false) // and no second question in the same minute
			if _, err := m.p.ConsumeResponse(t.Context(), post(validResponse().xml(t)),
				place); account.CodeOf(err) != account.CodeProviderFailed {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestMetadataSource_FetchesForNewKey: a response by a key that is not known lets the metadata be
// asked, once a minute.
func TestMetadataSource_FetchesForNewKey(t *testing.T) {
	t.Parallel()
	m := startMetadataServer(t, metadataOf(idpID, others()))
	m.expect(1, true)
	m.answer.Store(metadataOf(idpID, others(), ours()))
	rotated := validResponse()
	if _, err := m.p.ConsumeResponse(t.Context(), post(rotated.xml(t)), place); err == nil || m.asked.Load() != 1 {
		t.Fatalf("got %v after asking %d times: strangers make it ask as often as they like", err, m.asked.Load())
	}
	m.advance(time.Minute)
	if _, err := m.p.ConsumeResponse(t.Context(), post(rotated.xml(t)), place); err != nil || m.asked.Load() != 2 {
		t.Fatalf("got %v after asking %d times", err, m.asked.Load())
	}
}

// TestMetadataSource_RefusesOtherEntity: a URL that suddenly speaks of another identity provider
// does not make its word the old one's.
func TestMetadataSource_RefusesOtherEntity(t *testing.T) {
	t.Parallel()
	m := startMetadataServer(t, metadataOf(idpID, others()))
	m.expect(1, true)
	m.answer.Store(metadataOf("https://other.example.com", ours()))
	m.advance(time.Minute)
	_, err := m.p.ConsumeResponse(t.Context(), post(validResponse().xml(t)), place)
	causeOf(t, err)
}

// TestMetadataSource_BlocksOneLoginOnly: while one asks a URL that does not answer, the others go
// on with what is known.
func TestMetadataSource_BlocksOneLoginOnly(t *testing.T) {
	t.Parallel()
	m := startMetadataServer(t, metadataOf(idpID, ours()))
	m.expect(1, true)
	<-m.hit
	m.advance(refreshInterval)
	m.hold.Lock()
	waits := make(chan error, 1)
	go func() {
		_, err := m.p.StartFlow(t.Context(), &login.Flow{}, place)
		waits <- err
	}()
	<-m.hit
	m.expect(2, true)
	m.hold.Unlock()
	if err := <-waits; err != nil {
		t.Error(err)
	}
}

func TestMetadataSource_FetchesOnce(t *testing.T) {
	t.Parallel()
	m := startMetadataServer(t, metadataOf(idpID, ours()))
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := m.p.StartFlow(t.Context(), &login.Flow{}, place); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := m.asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}
