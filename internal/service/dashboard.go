// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/service/dashboard"
	"github.com/fairlead-dev/fairlead/internal/service/edge/public"
	"github.com/fairlead-dev/fairlead/internal/service/hsts"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
	"github.com/fairlead-dev/fairlead/internal/version"
)

// withDashboard returns a handler that serves the dashboard under its path and passes other paths
// to the API. It redirects a browser from "/" to the dashboard.
func (s *service) withDashboard(api http.Handler, writes *publishingStore) http.Handler {
	ui := dashboard.New(dashboard.Options{
		SharedOptions: s.httpOptions(), Store: writes,
		GeoIP: s.geo != nil, Version: version.String(), ClientIP: s.clientIPFunc(),
		CheckPolicy: compilePolicy, CheckStaticAddress: s.checkStaticAddress,
		Seal: s.key.Seal, Unseal: s.key.Unseal,
		Replicas: s.replicaRows(), ActiveChildren: s.activeChildrenOfReplicas(), Traffic: s.traffic,
		Certificates: s.certificates(),
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil {
			hsts.Set(w.Header(), r.Host)
		}
		switch path := r.URL.Path; {
		case path == strings.TrimSuffix(dashboard.Path, "/"), path == "/" && wantsHTML(r):
			http.Redirect(w, r, dashboard.Path, http.StatusSeeOther)
		case strings.HasPrefix(path, dashboard.Path):
			ui.ServeHTTP(w, r)
		default:
			api.ServeHTTP(w, r)
		}
	})
}

// certificates returns the certificates whose end stops something.
func (s *service) certificates() *certificates {
	return &certificates{service: s.certs, public: s.publicCerts, logins: s.loginCertificates}
}

// httpOptions returns the options that the API and the dashboard share.
func (s *service) httpOptions() httpkit.SharedOptions {
	return httpkit.SharedOptions{
		SessionEnder: s.sessions, Revoker: s.revoker, ActiveChild: s.backends.Active,
		RedactionMark: s.key.RedactionMark, MatchSelectors: compileSelectors, Draining: s.refusesWrites,
		BaseURL: s.baseURL.String(), OnAuthenticated: s.markAuthenticated, OnAnswer: s.meter.api.countAnswer,
		Logger: s.log,
	}
}

// clientIPFunc returns a function that returns the client address of a request to the API's
// listener. A balancer's forwarding headers count only if it is a trusted proxy.
func (s *service) clientIPFunc() func(*http.Request) netip.Addr {
	return func(r *http.Request) netip.Addr {
		at, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil {
			return netip.Addr{}
		}
		return public.ForwardedClient(r, at.Addr(), s.trustedProxies)
	}
}

// wantsHTML reports whether a browser asks for a page: clients of the API send a key and do not ask
// for HTML.
func wantsHTML(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Authorization") == "" &&
		strings.Contains(r.Header.Get("Accept"), "text/html")
}
