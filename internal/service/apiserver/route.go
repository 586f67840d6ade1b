// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
)

// route serves one path. Its pattern is "" for paths that have no route.
type route struct {
	server  *server
	pattern string
	methods methods
}

// call is one request on its way through the checks.
type call struct {
	httpkit.Call
	server *server
	method *method // method is set for an operation that is offered.
}

// now returns the time of the service's clock.
func (c *call) now() time.Time { return c.server.opt.Clock() }

// ServeHTTP checks in this order: key (401), rate (429), version (400), scope (403), route (404,
// 405), whether the server is about to stop (503), a query where the operation has none (400); all
// else is the handler's.
func (rt *route) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := rt.server
	c := &call{Call: httpkit.NewCall(w, r, s.opt.Clock()), server: s}
	h := w.Header()
	h.Set(OperationHeader, c.OperationID)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	s.calls.Run(&c.Call, rt.pattern, func() error { return rt.handle(c) }, c.writeError)
}

func (rt *route) handle(c *call) error {
	s, name := rt.server, c.Request.Method
	if err := s.authenticate(c); err != nil {
		return err
	}
	s.opt.OnAuthenticated(c.Request)
	if now := s.opt.Clock(); !s.rates.Allow(c.Key.ID, now) {
		c.SetRetryAfter(s.rates.Wait(c.Key.ID, now))
		return account.Errorf(account.CodeTooMany, "this API key sends more than %g requests/s; slow down",
			s.opt.Limits.Rate)
	}
	if err := s.checkVersion(c.Request.Header); err != nil {
		return err
	}
	var scopes []account.Scope
	m, offered := rt.methods[name]
	if offered {
		scopes = m.Scopes
	} else if name == http.MethodGet || name == http.MethodHead {
		scopes = []account.Scope{account.ScopeRead}
	}
	if !c.Key.HasAnyScope(scopes...) {
		return account.Errorf(account.CodeScope, "this needs an API key with the scope %s",
			httpkit.ScopeAlternatives(scopes))
	}
	switch {
	case rt.pattern == "":
		return account.Errorf(account.CodeNoRoute, "there is nothing at %q; docs/reference/api lists the routes",
			account.Shorten(c.Request.URL.Path))
	case !offered:
		allowed := strings.Join(slices.Sorted(maps.Keys(rt.methods)), ", ")
		c.Writer.Header().Set("Allow", allowed)
		return account.Errorf(account.CodeMethod, "%s is not offered at %s, only %s", account.Shorten(name),
			rt.pattern, allowed)
	case !m.WhileDraining && s.opt.Draining.Load():
		return account.Errorf(account.CodeUnavailable, "the server is about to stop; try again in a moment")
	}
	if c.method = m; m.Query == nil {
		if err := c.parseQuery().err(); err != nil {
			return err
		}
	}
	return m.handle(c)
}

// authenticate sets the key of the call.
func (s *server) authenticate(c *call) error {
	values := c.Request.Header.Values("Authorization")
	scheme, secret, ok := strings.Cut(strings.Join(values, ","), " ")
	if len(values) == 0 || !ok || !strings.EqualFold(scheme, "Bearer") {
		return account.Errorf(account.CodeNoCredential, "send an API key in the header Authorization: Bearer <API_KEY>")
	}
	key, err := s.opt.Store.APIKeyBySecret(c.Context(), strings.TrimSpace(secret))
	c.Key = key
	return err
}

// checkVersion checks the values of every name that the version header may have; they must agree.
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
		return account.Errorf(account.CodeVersionHeader,
			"the version header has conflicting values %s; send %s: %s once",
			account.Shorten(strings.Join(given, ", ")), s.opt.VersionHeaders[0], Version)
	case given[0] != Version:
		return account.Errorf(account.CodeVersionHeader, "version %q is not offered; send %s: %s",
			account.Shorten(given[0]),
			s.opt.VersionHeaders[0], Version)
	}
	return nil
}
