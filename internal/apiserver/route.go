// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// route is one path. Its pattern is "" for paths that have no route.
type route struct {
	server  *server
	pattern string
	methods map[string]method
}

// method is what a route does for one HTTP method, and the scopes of which a key needs one.
type method struct {
	scopes []account.Scope
	handle func(*call) error
}

// call is one request on its way through the checks.
type call struct {
	server  *server
	w       *recorder
	r       *http.Request
	key     *account.APIKey // nil until the key was checked
	op      string          // operation id
	started time.Time
}

// accountID is the account that everything in this call is scoped to.
func (c *call) accountID() string { return c.key.AccountID }

// caller is on whose behalf this call writes.
func (c *call) caller() account.Caller {
	return account.Caller{AccountID: c.key.AccountID, PrincipalID: c.key.ID}
}

// ServeHTTP checks in this order: key (401), rate (429), version (400), scope (403), route (404,
// 405); the rest is the handler's.
func (rt *route) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := rt.server
	c := &call{server: s, w: &recorder{ResponseWriter: w}, r: r, started: s.opt.Clock()}
	c.op = account.NewID(account.PrefixOperation, c.started)
	h := w.Header()
	h.Set(OperationHeader, c.op)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	defer func() {
		if p := recover(); p != nil {
			c.panicked(rt, p)
		}
	}()
	err := rt.serve(c)
	if err != nil && !c.w.started {
		c.writeError(err)
	}
	c.log(rt, err)
}

func (rt *route) serve(c *call) error {
	s := rt.server
	if err := s.authenticate(c); err != nil {
		return err
	}
	if s.opt.OnAuthenticated != nil {
		s.opt.OnAuthenticated(c.r)
	}
	if wait := s.rates.take(c.key.ID, s.opt.Clock()); wait > 0 {
		c.w.Header().Set("Retry-After", fmt.Sprint(int(wait.Seconds())+1))
		return account.Errorf(account.CodeTooMany, "this API key sends more than %g requests/s; slow down", s.opt.Limits.Rate)
	}
	if err := s.checkVersion(c.r.Header); err != nil {
		return err
	}
	m, offered := rt.methods[c.r.Method]
	if !offered {
		m.scopes = scopesOf(c.r.Method)
	}
	if !c.key.HasAnyScope(m.scopes...) {
		return account.Errorf(account.CodeScope, "this needs an API key with the scope %s", scopeList(m.scopes))
	}
	switch {
	case rt.pattern == "":
		return account.Errorf(account.CodeNoRoute, "there is nothing at %q; docs/api.md lists the routes",
			account.Shorten(c.r.URL.Path))
	case !offered:
		allowed := strings.Join(slices.Sorted(maps.Keys(rt.methods)), ", ")
		c.w.Header().Set("Allow", allowed)
		return account.Errorf(account.CodeMethod, "%s is not offered at %s, only %s", account.Shorten(c.r.Method), rt.pattern,
			allowed)
	}
	return m.handle(c)
}

// scopesOf are the scopes that a method needs where no route says so.
func scopesOf(httpMethod string) []account.Scope {
	if httpMethod == http.MethodGet || httpMethod == http.MethodHead {
		return reading
	}
	return nil // admin
}

func scopeList(scopes []account.Scope) string {
	text := ""
	for _, s := range scopes {
		text += string(s) + " or "
	}
	return text + string(account.ScopeAdmin)
}

// authenticate finds the key of the request.
func (s *server) authenticate(c *call) error {
	values := c.r.Header.Values("Authorization")
	scheme, secret, ok := strings.Cut(strings.Join(values, ","), " ")
	if len(values) == 0 || !ok || !strings.EqualFold(scheme, "Bearer") {
		return account.Errorf(account.CodeNoCredential, "send an API key in the header Authorization: Bearer <API_KEY>")
	}
	key, err := s.opt.Authenticator.APIKeyBySecret(c.r.Context(), strings.TrimSpace(secret))
	c.key = key
	return err
}

// checkVersion reads every name that the version header may have; they must agree.
func (s *server) checkVersion(h http.Header) error {
	var given []string
	for _, name := range s.opt.VersionHeaders {
		for _, v := range h.Values(name) {
			if v = strings.TrimSpace(v); !slices.Contains(given, v) {
				given = append(given, v)
			}
		}
	}
	switch {
	case len(given) == 0:
		return account.Errorf(account.CodeVersionHeader, "send the header %s: %s", s.opt.VersionHeaders[0], Version)
	case len(given) > 1:
		return account.Errorf(account.CodeVersionHeader, "the version header has conflicting values %s; send %s: %s once",
			account.Shorten(strings.Join(given, ", ")), s.opt.VersionHeaders[0], Version)
	case given[0] != Version:
		return account.Errorf(account.CodeVersionHeader, "version %q is not offered; send %s: %s", account.Shorten(given[0]),
			s.opt.VersionHeaders[0], Version)
	}
	return nil
}
