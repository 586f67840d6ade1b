// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
)

// controlAPI is the API with which tests control the providers. Bodies are JSON except as noted; a
// response is JSON or empty.
//
//	PUT  /edge {addr, ca}                            where https hosts really listen, and whom to trust (PEM)
//	PUT  /providers/{name} {kind}                    one more provider, at http://NAME.localhost:PORT
//	PUT  /providers/{name}/users {user}
//	PUT  /providers/{name}/clients {client}
//	PUT  /providers/{name}/services/{id}             of SAML: metadata of a service provider, XML
//	PUT  /providers/{name}/shortcuts/{id} {entity_id, relay_state}   of SAML: /login/ID begins a login there
//	POST /providers/{name}/rotate {forget}           a new signing key
//	POST /providers/{name}/logout {email}            ends the person's sessions; back-channel logout
//	PUT  /providers/{name}/fault {mode, path}
//	GET  /providers/{name}/requests                  what the provider was asked
func controlAPI(h *host, out *edgeTransport) http.Handler {
	mux := http.NewServeMux()
	handle(mux, "PUT /edge", func(_ *http.Request, in edge) (any, error) { return nil, out.set(in) })
	handle(mux, "PUT /providers/{name}", func(r *http.Request, in struct{ Kind string }) (any, error) {
		return h.add(in.Kind, r.PathValue("name"))
	})
	handleAt(mux, h, "PUT /providers/{name}/users", func(r *http.Request, s *providerSlot, in user) (any, error) {
		return nil, s.putUser(r.Context(), in)
	})
	handleAt(mux, h, "PUT /providers/{name}/clients", func(r *http.Request, s *providerSlot, in client) (any, error) {
		return nil, s.putClient(r.Context(), in)
	})
	handleAt(mux, h, "POST /providers/{name}/rotate", func(r *http.Request, s *providerSlot, in struct {
		Forget bool
	}) (any, error) {
		return nil, s.rotate(r.Context(), in.Forget)
	})
	handleAt(mux, h, "POST /providers/{name}/logout", func(r *http.Request, s *providerSlot, in struct {
		Email string
	}) (any, error) {
		n, err := s.endSessions(r.Context(), in.Email)
		return map[string]int{"ended": n}, err
	})
	handleAt(mux, h, "PUT /providers/{name}/fault", func(_ *http.Request, s *providerSlot, in fault) (any, error) {
		s.setFault(in)
		return nil, nil
	})
	handleAt(mux, h, "GET /providers/{name}/requests", func(_ *http.Request, s *providerSlot, _ struct{}) (any, error) {
		return s.requests(), nil
	})
	samlControl(mux, h)
	return mux
}

func samlControl(mux *http.ServeMux, h *host) {
	of := func(s *providerSlot) (*samlIDP, error) {
		if p, ok := s.provider.(*samlIDP); ok {
			return p, nil
		}
		return nil, errors.ErrUnsupported
	}
	mux.HandleFunc("PUT /providers/{name}/services/{id}", func(w http.ResponseWriter, r *http.Request) {
		s := h.slot(r.PathValue("name"))
		if s == nil {
			answer(w, nil, errNoProvider)
			return
		}
		p, err := of(s)
		if err == nil {
			err = p.putServiceProvider(r.Context(), r.PathValue("id"), r.Body)
		}
		answer(w, nil, err)
	})
	type shortcut struct {
		EntityID   string  `json:"entity_id"`
		RelayState *string `json:"relay_state"`
	}
	handleAt(mux, h, "PUT /providers/{name}/shortcuts/{id}",
		func(r *http.Request, s *providerSlot, in shortcut) (any, error) {
			p, err := of(s)
			if err == nil {
				err = p.putShortcut(r.PathValue("id"), in.EntityID, in.RelayState)
			}
			return nil, err
		})
}

var errNoProvider = errors.New("no provider has this name")

// handle reads JSON, calls f and answers with what it returns.
func handle[T any](mux *http.ServeMux, pattern string, f func(*http.Request, T) (any, error)) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		var in T
		if r.Method != http.MethodGet {
			if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
				answer(w, nil, err)
				return
			}
		}
		found, err := f(r, in)
		answer(w, found, err)
	})
}

func handleAt[T any](
	mux *http.ServeMux, h *host, pattern string, f func(*http.Request, *providerSlot, T) (any, error),
) {
	handle(mux, pattern, func(r *http.Request, in T) (any, error) {
		s := h.slot(r.PathValue("name"))
		if s == nil {
			return nil, errNoProvider
		}
		return f(r, s, in)
	})
}

func answer(w http.ResponseWriter, found any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if found == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(found)
}

// edge is the address of the edge that providers call.
type edge struct {
	Addr string `json:"addr"` // of every host's port 443
	CA   string `json:"ca"`   // PEM
}

// edgeTransport is how providers call others: hosts below localhost are here, port 443 is the
// edge's.
type edgeTransport struct {
	mu   sync.Mutex
	addr string
	pool *x509.CertPool
}

func (o *edgeTransport) set(e edge) error {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(e.CA)) {
		return errors.New("ca: no certificate")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.addr, o.pool = e.Addr, pool
	return nil
}

func (o *edgeTransport) edge() (string, *x509.CertPool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.addr, o.pool
}

func (o *edgeTransport) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(host, ".localhost") {
		addr = net.JoinHostPort("127.0.0.1", port)
	}
	if to, _ := o.edge(); port == "443" && to != "" {
		addr = to
	}
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}

func (o *edgeTransport) transport() *http.Transport {
	return &http.Transport{
		DialContext: o.dial,
		DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := o.dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			host, _, _ := net.SplitHostPort(addr)
			_, pool := o.edge()
			tc := tls.Client(conn, &tls.Config{ServerName: host, RootCAs: pool, MinVersion: tls.VersionTLS12})
			if err := tc.HandshakeContext(ctx); err != nil {
				_ = conn.Close()
				return nil, err
			}
			return tc, nil
		},
	}
}
