// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/live"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// fakeStore is an account.Logins and an account.Revoker without a database.
type fakeStore struct {
	mu         sync.Mutex
	sessions   map[string]*account.LiveSession // by the hash of the secret
	logins     []account.NewLogin
	tickets    map[string][]byte
	used       map[string]bool
	revoked    []account.RevokeSelector
	reasons    []string
	devices    []string        // that were noted
	err        error           // of every call
	loginAgain int             // the number of logins that fail with CodeLoginAgain
	onRead     func(id string) // called during LiveSession; nil = none
	clockErr   error           // what Time returns
}

// storeAhead is how far the store's clock is ahead of the server's.
const storeAhead = 30 * time.Minute

func newFakeStore() *fakeStore {
	return &fakeStore{sessions: map[string]*account.LiveSession{}, tickets: map[string][]byte{},
		used: map[string]bool{}}
}

func (m *fakeStore) Time(context.Context) (time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Now().Add(storeAhead), m.clockErr
}

func (m *fakeStore) Login(_ context.Context, accountID string, l account.NewLogin) (*account.LiveSession, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.logins = append(m.logins, l)
	if m.err != nil {
		return nil, m.err
	}
	if m.loginAgain > 0 {
		m.loginAgain--
		return nil, account.Errorf(account.CodeLoginAgain, "again")
	}
	var replaced string
	if old := m.sessions[string(l.Replaces)]; old != nil && old.Scope == l.Scope {
		replaced = old.ID
		delete(m.sessions, string(l.Replaces))
	}
	s := &account.LiveSession{ReplacedSessionID: replaced, ID: "as-" + string(rune('0'+len(m.logins))),
		AccountID: accountID, Scope: l.Scope, Identity: l.Identity, Provider: l.Provider}
	s.Identity.ID = "au-" + l.Identity.ProviderUserID
	m.sessions[string(l.TokenHash)] = s
	return s, nil
}

func (m *fakeStore) LiveSession(_ context.Context, accountID string, hash []byte) (*account.LiveSession, error) {
	m.mu.Lock()
	s, err, onRead := m.sessions[string(hash)], m.err, m.onRead
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if s == nil || s.AccountID != accountID {
		return nil, account.Errorf(account.CodeNotFound, "no session")
	}
	if onRead != nil {
		onRead(s.ID)
	}
	return s, nil
}

func (m *fakeStore) RecordDevice(s *account.LiveSession, d account.Device) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.devices = append(m.devices, s.ID+" "+d.IPAddress+" "+d.UserAgent.Raw)
	s.LastUse.Device = d
}

func (m *fakeStore) UseOnce(_ context.Context, _, key string, _ time.Time) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	first := !m.used[key]
	m.used[key] = true
	return first, m.err
}

func (m *fakeStore) SaveTicket(_ context.Context, _ string, hash, data []byte, _ time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tickets[string(hash)] = data
	return m.err
}

func (m *fakeStore) RedeemTicket(_ context.Context, _ string, hash []byte) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	data := m.tickets[string(hash)]
	delete(m.tickets, string(hash))
	if data == nil {
		return nil, account.Errorf(account.CodeNotFound, "no ticket")
	}
	return data, m.err
}

func (m *fakeStore) LiveSessionIDs(context.Context, []string) (map[string]bool, error) {
	return nil, nil
}

func (m *fakeStore) Revoke(
	_ context.Context, _ account.Caller, sel account.RevokeSelector, reason string,
) (*account.Revocation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil && sel.ReplayKey != "" {
		if m.used[sel.ReplayKey] {
			return nil, account.Errorf(account.CodeLoginFailed, "used")
		}
		m.used[sel.ReplayKey] = true
	}
	m.revoked, m.reasons = append(m.revoked, sel), append(m.reasons, reason)
	maps.DeleteFunc(m.sessions, func(_ string, s *account.LiveSession) bool { return s.ID == sel.SessionID })
	return &account.Revocation{}, m.err
}

// fakeProvider is a provider of every kind, which returns the authentication that a test sets.
type fakeProvider struct {
	mu             sync.Mutex
	flows          []Flow
	authentication Authentication
	err            error
	token          LogoutToken
	scope          string
}

func (p *fakeProvider) Scope() string { return p.scope }

func (p *fakeProvider) StartFlow(_ context.Context, f *Flow, action Action) (Redirect, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flows = append(p.flows, *f)
	return Redirect{URL: "https://idp.example.com/start?" + url.Values{"state": {f.State},
		"back": {action.URL(PathCallback)}}.Encode(), RequestID: "id-" + f.State}, p.err
}

func (p *fakeProvider) HandleCallback(_ context.Context, r *http.Request, f *Flow, _ Action) (*Authentication, error) {
	if r.URL.Query().Get("code") != "good" || f.Verifier == "" || f.Nonce == "" {
		return nil, RefusedError("a bad code", errors.New("cause-of-refusal"))
	}
	return p.authenticate()
}

func (p *fakeProvider) authenticate() (*Authentication, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.authentication
	return &c, p.err
}

func (p *fakeProvider) ConsumeResponse(_ context.Context, r *http.Request, _ Action) (*Authentication, error) {
	if err := r.ParseForm(); err != nil {
		return nil, RefusedError("a bad form", err)
	}
	return p.authenticate()
}

func (p *fakeProvider) Metadata(_ context.Context, action Action) ([]byte, error) {
	return []byte("<md " + action.URL(PathACS) + ">"), nil
}

func (p *fakeProvider) VerifyLogout(_ context.Context, r *http.Request) (LogoutToken, error) {
	if r.PostForm.Get("logout_token") != "good" {
		return LogoutToken{}, errors.New("a bad token")
	}
	return p.token, nil
}

func (p *fakeProvider) last() Flow {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flows[len(p.flows)-1]
}

// harness is a Handler with a fake store and provider.
type harness struct {
	t       testing.TB
	store   *fakeStore
	idp     *fakeProvider
	live    *live.Registry
	handler *Handler
	log     *bytes.Buffer
	config  trafficpolicy.LoginConfig

	clockErr error // of CheckClock
}

// CheckClock implements ClockChecker.
func (h *harness) CheckClock() error { return h.clockErr }

func newHarness(t testing.TB, change ...func(*harness)) *harness {
	t.Helper()
	key, err := seal.New(bytes.Repeat([]byte{7}, seal.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	w := &harness{t: t, store: newFakeStore(), live: live.New(nil), log: &bytes.Buffer{},
		idp: &fakeProvider{scope: "issuer and client"},
		config: trafficpolicy.LoginConfig{Kind: trafficpolicy.LoginOIDC, AuthID: "staff", MaxSession: time.Hour,
			Digest: "d"}}
	w.idp.authentication = Authentication{Authentication: account.Authentication{Key: "k",
		Identity: account.LoginIdentity{ProviderUserID: "ann", Name: "Ann", Groups: []string{"staff"}},
		Provider: account.IdentityProvider{Name: "IdP"}}}
	for _, f := range change {
		f(w)
	}
	w.handler = New(Options{Store: w.store, Revoker: w.store, Live: w.live, Key: key,
		Logger: slog.New(slog.NewTextHandler(w.log, nil)), ClockChecker: w,
		Providers: map[trafficpolicy.LoginKind]Factory{
			trafficpolicy.LoginOIDC: func(*trafficpolicy.LoginConfig, *http.Client) (Provider, error) {
				return w.idp, nil
			}}})
	t.Cleanup(w.handler.Close)
	return w
}

// browser keeps cookies as a browser does.
type browser struct {
	h       *harness
	host    string
	cookies map[string]string
}

func (h *harness) browser() *browser {
	return &browser{h: h, host: "app.example.com", cookies: map[string]string{}}
}

// plainPages writes pages as plain text.
type plainPages struct{}

func (plainPages) WritePage(w http.ResponseWriter, _ *http.Request, status int, code account.Code, msg string) {
	w.Header().Set(account.CodeHeader, string(code))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, msg)
}

// response is the response to a request, and the request that was passed upstream.
type response struct {
	*httptest.ResponseRecorder
	upstream *http.Request // nil = none
	person   *account.LoginIdentity
}

func (b *browser) do(r *http.Request) response {
	b.h.t.Helper()
	for name, value := range b.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	r.Host = b.host
	res := response{ResponseRecorder: httptest.NewRecorder()}
	ep := &account.Endpoint{ID: "ep-" + b.host, AccountID: "ac", URL: "https://" + b.host}
	q := trafficpolicy.LoginRequest{Config: &b.h.config, Endpoint: ep,
		Conn:  &trafficpolicy.Conn{ClientIP: netip.MustParseAddr("192.0.2.7"), TLS: true},
		Pages: plainPages{}}
	b.h.handler.ServeLogin(res.ResponseRecorder, r, q,
		func(w http.ResponseWriter, r *http.Request, person *account.LoginIdentity) {
			if res.upstream != nil {
				b.h.t.Error("next was called twice")
			}
			res.upstream, res.person = r, person
			_, _ = io.WriteString(w, "upstream")
		})
	for _, c := range res.Result().Cookies() { //nolint:bodyclose // of a recorder
		if !c.Secure || !c.HttpOnly || c.Path != "/" || c.SameSite != http.SameSiteLaxMode || c.Domain != "" ||
			!strings.HasPrefix(c.Name, "__Host-fl-staff") {
			b.h.t.Errorf("the cookie %s", c)
		}
		if b.cookies[c.Name] = c.Value; c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		}
	}
	if res.Code == http.StatusSeeOther && res.Header().Get("Cache-Control") != "no-store" {
		b.h.t.Error("a redirect may be cached")
	}
	if own, hsts := res.upstream == nil, res.Header().Get("Strict-Transport-Security") != ""; own != hsts {
		b.h.t.Errorf("answered by the login: %t; Strict-Transport-Security: %t", own, hsts)
	}
	return res
}

// get navigates.
func (b *browser) get(target string, header ...string) response {
	b.h.t.Helper()
	r := httptest.NewRequest(http.MethodGet, target, nil)
	r.Header.Set("Sec-Fetch-Mode", "navigate")
	for i := 0; i < len(header); i += 2 {
		r.Header[header[i]] = []string{header[i+1]}
	}
	return b.do(r)
}

// post sends a form.
func (b *browser) post(target, form string, header ...string) response {
	b.h.t.Helper()
	r := httptest.NewRequest(http.MethodPost, target, strings.NewReader(form))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(header); i += 2 {
		r.Header[header[i]] = []string{header[i+1]}
	}
	return b.do(r)
}

// callback returns the path to which the provider redirects the browser for the last flow.
func (h *harness) callback() string {
	return "/_fairlead/staff/callback?code=good&state=" + h.idp.last().State
}

// login starts a login at the path, and returns the response to its callback.
func (b *browser) login(path string) response {
	b.h.t.Helper()
	if res := b.get(path); res.Code != http.StatusSeeOther {
		b.h.t.Fatalf("%d %s", res.Code, res.Body)
	}
	return b.get(b.h.callback())
}
