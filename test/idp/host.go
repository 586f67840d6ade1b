// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"golang.org/x/crypto/bcrypt"
)

// provider is an identity provider. Methods that a provider has not got return
// errors.ErrUnsupported.
type provider interface {
	http.Handler
	describe() description
	putUser(ctx context.Context, u user) error
	putClient(ctx context.Context, c client) error
	// forget: tokens of the old key are no good any more
	rotate(ctx context.Context, forget bool) error
	// and notifies the clients of the ended sessions
	endSessions(ctx context.Context, email string) (ended int, err error)
}

// description has the addresses of a provider.
type description struct {
	Kind     string `json:"kind"`
	URL      string `json:"url"`
	Issuer   string `json:"issuer,omitempty"`       // of OpenID Connect
	Metadata string `json:"metadata_url,omitempty"` // of SAML, and its entity id
}

// user is a person. The e-mail address is what one logs in with.
type user struct {
	Email      string   `json:"email"`
	Password   string   `json:"password"`
	Username   string   `json:"username"`
	Name       string   `json:"name"`
	Groups     []string `json:"groups"`
	Unverified bool     `json:"unverified"` // the e-mail address

	hash []byte // of the password, when it is known
}

// passwordHash returns the bcrypt hash of the password, at the least cost that Dex accepts.
func (u *user) passwordHash() ([]byte, error) {
	if u.hash != nil {
		return u.hash, nil
	}
	return bcrypt.GenerateFromPassword([]byte(u.Password), bcrypt.DefaultCost)
}

// client is an application of an OpenID Connect provider.
type client struct {
	ID                     string   `json:"id"`
	Secret                 string   `json:"secret"`
	RedirectURIs           []string `json:"redirect_uris"`
	PostLogoutRedirectURIs []string `json:"post_logout_redirect_uris"`
	BackChannelLogoutURI   string   `json:"backchannel_logout_uri"`
}

// people are in every provider. Their passwords are hashed once.
var people = sync.OnceValues(func() ([]user, error) {
	all := []user{
		{Email: "alice@example.com", Password: "alice-password", Username: "alice", Name: "Alice Arnold",
			Groups: []string{"engineering", "admins"}},
		{Email: "bob@example.com", Password: "bob-password", Username: "bob", Name: "Bob Brown",
			Groups: []string{"support"}},
		{Email: "eve@example.com", Password: "eve-password", Username: "eve", Name: "Éve \"Œ\"", Unverified: true},
	}
	for i := range all {
		hash, err := all[i].passwordHash()
		if err != nil {
			return nil, err
		}
		all[i].hash = hash
	}
	return all, nil
})

// host routes requests to providers by the first label of the host name: NAME.localhost.
type host struct {
	ctx  context.Context
	log  *slog.Logger
	port int

	mu    sync.RWMutex
	slots map[string]*providerSlot
}

// add makes a provider of the kind under the name.
func (h *host) add(kind, name string) (description, error) {
	base := fmt.Sprintf("http://%s.localhost:%d", name, h.port)
	var p provider
	var err error
	switch log := h.log.With("provider", name); kind {
	case "dex":
		p, err = newDex(h.ctx, base, log)
	case "op":
		p = newOP(base, log)
	case "saml":
		p, err = newSAML(base, log)
	default:
		err = fmt.Errorf("kind %q: must be dex, op or saml", kind)
	}
	if err != nil {
		return description{}, err
	}
	users, err := people()
	if err != nil {
		return description{}, err
	}
	for _, u := range users {
		if err := p.putUser(h.ctx, u); err != nil {
			return description{}, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.slots[name] = &providerSlot{provider: p}
	return p.describe(), nil
}

func (h *host) slot(name string) *providerSlot {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.slots[name]
}

func (h *host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		name = r.Host
	}
	s := h.slot(strings.TrimSuffix(name, ".localhost"))
	if s == nil {
		http.Error(w, "no identity provider has this name", http.StatusMisdirectedRequest)
		return
	}
	s.ServeHTTP(w, r)
}

// recordedRequest is a request to a provider without its secrets.
type recordedRequest struct {
	Method    string     `json:"method"`
	Path      string     `json:"path"`
	Query     url.Values `json:"query"`
	GrantType string     `json:"grant_type,omitempty"`
}

// fault is a failure of requests whose path ends in Path.
type fault struct {
	// "" or "none", "stall": no answer, "500", "garbage": an answer that is neither HTML nor JSON,
	// "huge": one without end
	Mode string `json:"mode"`
	Path string `json:"path"` // "" = all
}

// providerSlot is a provider with a record of its requests and an injected fault.
type providerSlot struct {
	provider

	mu       sync.Mutex
	recorded []recordedRequest
	fault    fault
	lifted   chan struct{} // closed when the fault changes
}

const maxRecorded = 2000

func (s *providerSlot) setFault(f fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lifted != nil {
		close(s.lifted)
	}
	s.fault, s.lifted = f, make(chan struct{})
}

func (s *providerSlot) recordRequest(r *http.Request) (fault, <-chan struct{}) {
	a := recordedRequest{Method: r.Method, Path: r.URL.Path, Query: r.URL.Query()}
	if strings.HasSuffix(r.URL.Path, "/token") && r.Method == http.MethodPost {
		a.GrantType = r.PostFormValue("grant_type")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.recorded) < maxRecorded {
		s.recorded = append(s.recorded, a)
	}
	if !strings.HasSuffix(r.URL.Path, s.fault.Path) {
		return fault{}, nil
	}
	return s.fault, s.lifted
}

func (s *providerSlot) requests() []recordedRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.recorded)
}

func (s *providerSlot) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch f, lifted := s.recordRequest(r); f.Mode {
	case "stall":
		select {
		case <-r.Context().Done():
		case <-lifted:
		}
		http.Error(w, "stalled", http.StatusServiceUnavailable)
	case "500":
		http.Error(w, "broken on purpose", http.StatusInternalServerError)
	case "garbage":
		fmt.Fprint(w, "\x00\xff}{ <script>alert(1)</script>")
	case "huge":
		w.Header().Set("Content-Type", "application/json")
		for chunk := []byte(`{"a":"` + strings.Repeat("a", 1<<16)); r.Context().Err() == nil; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	default:
		s.provider.ServeHTTP(w, r)
	}
}
