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

// noEndpointMessage is the same for unknown hosts, for hosts that no account may have and for hosts
// without an endpoint at the port, so that it does not tell them apart.
const noEndpointMessage = "There is nothing at this address."

// noEndpoint returns the message for a request without an endpoint. What it says of the address is
// the request's own.
func noEndpoint(scheme, host string, port int) string {
	if host == "" {
		return noEndpointMessage
	}
	return noEndpointMessage + " It is " + account.EndpointURL{Scheme: scheme, Host: host, Port: port}.String() +
		": scheme, host and port choose the endpoint."
}

// handle answers one request. The endpoint is chosen by host and port of the request, not of the
// connection. One at another port is asked only where the answer would be that there is nothing.
func (s *Server) handle(w http.ResponseWriter, r *http.Request) {
	c, ok := r.Context().Value(connKey{}).(*conn)
	if !ok {
		panic("public: a request without its connection")
	}
	if refused := framing.CheckRequest(r); refused != nil {
		if r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close")
		}
		s.opt.Handler.WriteError(w, r, refused.Code, refused.Msg)
		return
	}
	if s.opt.ACME != nil && s.opt.ACME.ServeChallenge(w, r) {
		return
	}
	client := s.clientOf(c, r)
	scheme := "http"
	if client.TLS {
		scheme = "https"
	}
	host, port := splitHost(r.Host, scheme)
	if c.tls != nil && host != "" && !s.opt.Certificates.coversBoth(c.tls.ServerName, host) {
		s.opt.Handler.WriteError(w, r, account.CodeMisdirected,
			"This connection was opened for another host. Open a new one for this.")
		return
	}
	ep, err := s.lookup.find(r.Context(), host, port, scheme)
	switch {
	case err != nil:
		s.opt.Handler.WriteError(w, r, account.CodeUnavailable,
			"The service cannot look up who serves this address. Try again in a moment.")
	case (ep == nil || ep.Port != port) && scheme == "http" && s.redirect(w, r, host):
	case ep != nil:
		if ep.Port != port {
			client.Port = port
		}
		s.setForwarded(c, r, client, scheme)
		guarded, leave := s.grants.add(r, ep)
		defer leave()
		s.opt.Handler.ServeEndpoint(w, guarded, ep, client)
	default:
		s.opt.Handler.WriteError(w, r, account.CodeEndpointUnknown, noEndpoint(scheme, host, port))
	}
}

// splitHost parses the host of a request; without a port the scheme's default is returned. A host
// that no endpoint can have becomes "".
func splitHost(given, scheme string) (host string, port int) {
	host, port = given, account.DefaultPort(scheme)
	if h, p, err := net.SplitHostPort(given); err == nil {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return "", 0
		}
		host, port = h, int(n)
	}
	if host = strings.ToLower(strings.TrimSuffix(host, ".")); len(host) > 253 || !account.ValidPublicHost(host) {
		return "", 0
	}
	return host, port
}

// redirect redirects a client of the HTTP listener to the endpoint's https URL with 308, which
// keeps method and body. It returns false when there is no such endpoint.
func (s *Server) redirect(w http.ResponseWriter, r *http.Request, host string) bool {
	if s.opt.HTTPS == nil || host == "" {
		return false
	}
	ep, err := s.lookup.find(r.Context(), host, account.DefaultPort("https"), "https")
	if err != nil || ep == nil {
		return false
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
