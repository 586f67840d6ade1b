// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package public

import (
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/edge/framing"
)

// The page's sentence for hosts that nobody has, that somebody must not have, and that have no
// agent's or cloud endpoint at the port: one for all.
const nothingHere = "There is nothing at this address."

// handle answers one request: host and port of the request, not of the connection, choose the
// endpoint.
func (e *Server) handle(w http.ResponseWriter, r *http.Request) {
	c, ok := r.Context().Value(connKey{}).(*conn)
	if !ok {
		panic("public: a request without its connection")
	}
	if problem := framing.CheckRequest(r); problem != "" {
		if r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close")
		}
		e.opt.WriteError(w, r, account.CodeBadRequest, problem)
		return
	}
	client := e.clientOf(c, r)
	scheme := "http"
	if client.TLS {
		scheme = "https"
	}
	host, port := splitHost(r.Host, scheme)
	if c.tls != nil && host != "" && !e.opt.Certificates.coversBoth(c.tls.ServerName, host) {
		e.opt.WriteError(w, r, account.CodeMisdirected,
			"This connection was opened for another host. Open a new one for this.")
		return
	}
	ep, err := e.lookup.find(r.Context(), host, port, scheme)
	switch {
	case err != nil:
		e.opt.WriteError(w, r, account.CodeUnavailable,
			"The service cannot look up who serves this address. Try again in a moment.")
	case ep != nil:
		e.setForwarded(c, r, client, scheme)
		guarded, leave := e.guard.enter(r, ep)
		defer leave()
		e.opt.ServeEndpoint(w, guarded, ep, client)
	case scheme == "http" && e.redirect(w, r, host):
	default:
		e.opt.WriteError(w, r, account.CodeEndpointUnknown, nothingHere)
	}
}

// splitHost reads the host of a request; the port is the scheme's where it names none. What is no
// host that an endpoint can have becomes "".
func splitHost(given, scheme string) (host string, port int) {
	host, port = given, account.DefaultPort(scheme)
	if h, p, err := net.SplitHostPort(given); err == nil {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return "", 0
		}
		host, port = h, int(n)
	}
	if host = strings.ToLower(host); len(host) > 253 || !account.ValidPublicHost(host) {
		return "", 0
	}
	return host, port
}

// redirect sends a client of the HTTP listener to the endpoint's https URL, and says whether there
// is one. It keeps method and body (308).
func (e *Server) redirect(w http.ResponseWriter, r *http.Request, host string) bool {
	if e.opt.HTTPS == nil || host == "" {
		return false
	}
	ports := []int{443}
	if a, ok := e.opt.HTTPS.Addr().(*net.TCPAddr); ok && a.Port != 443 {
		ports = append(ports, a.Port)
	}
	for _, port := range ports {
		ep, err := e.lookup.find(r.Context(), host, port, "https")
		if err != nil || ep == nil {
			continue
		}
		path := r.RequestURI
		if path == "*" {
			path = "/"
		}
		w.Header().Set("Location", ep.URL+path)
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusPermanentRedirect)
		return true
	}
	return false
}
