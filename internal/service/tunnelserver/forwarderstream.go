// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/peers"
	"github.com/fairlead-dev/fairlead/internal/storecache"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// streams serves the streams that forwarders open.
type streams struct {
	registry *registry
	members  *members
	store    account.Endpoints
	cache    *storecache.Cache[endpointKey, *account.Endpoint] // endpoints that no session holds
	edge     Edge
	meter    Meter
	log      *slog.Logger
}

// Stream checks a stream that a forwarder opened and passes it to the edge. The stream names
// its endpoint and the endpoint's URL, which must match, so a listener that outlived its endpoint
// never reaches another upstream. The serving member is chosen by the URL. A forwarder without an
// operator names one of the URLs of its hello only.
func (s *streams) Stream(ctx context.Context, ts *tunnel.Session, st *tunnel.Stream) {
	t := s.registry.session(ts.ID())
	if t == nil || t.hello.Role != tunnel.RoleForwarder {
		s.refuse(st, tunnel.RefusedForbidden)
		return
	}
	if s.registry.isDraining() {
		s.refuse(st, tunnel.RefusedDraining)
		return
	}
	h := st.Header()
	url := account.EndpointURL{Scheme: h.Scheme, Host: h.Host, Port: h.Port}
	find := s.endpoint
	if t.operatorID == "" {
		if !slices.Contains(t.urls, url.String()) {
			s.refuse(st, tunnel.RefusedForbidden)
			return
		}
		find = s.endpointByURL
	}
	ep, err := find(ctx, t.accountID, h)
	switch {
	case err == nil && !servesForwarders(ep):
		s.refuse(st, tunnel.RefusedUnknownEndpoint)
	case account.CodeOf(err) == account.CodeNotFound:
		s.refuse(st, s.unknownEndpointCode(ctx, t.accountID, h.EndpointID))
	case err != nil:
		s.log.Error("the endpoint of a stream could not be read", "endpoint", h.EndpointID, "err", err)
		s.refuse(st, tunnel.RefusedInternal)
	case ep.Host != h.Host || ep.Port != h.Port || h.Scheme != "" && ep.Scheme != h.Scheme:
		s.refuse(st, tunnel.RefusedMismatch)
	default:
		if !h.IsSpare() {
			s.meter.CountIncomingStream("accepted")
		}
		s.edge.ServeStream(ctx, Incoming{Stream: st, Endpoint: ep, Origin: t.originOf(h), Draining: ts.PeerDraining(),
			Forwarder: Forwarder{ts, h.EndpointID}})
	}
}

// originOf returns whence a stream with the header came.
func (t *session) originOf(h tunnel.OpenHeader) Origin {
	if t.operatorID != "" {
		return Origin{OperatorID: t.operatorID, Cluster: t.cluster, ClientAddr: h.ClientAddr, Pod: h.Pod,
			TrustsForwarding: h.TrustsForwarding}
	}
	o := Origin{CredentialID: t.credentialID}
	if t.ip != "" {
		o.ClientAddr = net.JoinHostPort(t.ip, "0")
	}
	return o
}

// Forwarder is the forwarder that has opened a stream.
type Forwarder struct {
	session    *tunnel.Session
	endpointID string // id that the stream names; another member of the pool may serve
}

// ReportLine sends the forwarder a line about a request of its stream; it never blocks.
func (f Forwarder) ReportLine(line tunnel.RequestLine) {
	line.EndpointID = f.endpointID
	f.session.SendRequestLine(line)
}

// servesForwarders reports whether forwarders may open streams to the endpoint. Those of other
// bindings are not reachable from a cluster, and the record of an exported Service carries nothing:
// its ports have endpoints of agents.
func servesForwarders(ep *account.Endpoint) bool {
	switch ep.Bindings[0] {
	case account.BindingKubernetes:
		return true
	case account.BindingClusterset:
		return ep.Type == account.TypeAgent && ep.Scheme == "tcp"
	}
	return false
}

// forwardedBinding returns the binding of the endpoints that a forwarder may name at the host: the
// hosts of exported ports have three labels, others two.
func forwardedBinding(host string) string {
	if strings.Count(host, ".") == 2 {
		return account.BindingClusterset
	}
	return account.BindingKubernetes
}

// maxCachedEndpoints bounds the endpoints that are kept for outages of the store.
const maxCachedEndpoints = 10_000

// endpointKey is an account's endpoint, by its id or by its URL.
type endpointKey struct {
	accountID, id string
	url           string // "" = by the id
}

// newEndpointCache makes a cache that asks the store each time and uses its answers during outages.
func newEndpointCache(store account.Endpoints) *storecache.Cache[endpointKey, *account.Endpoint] {
	return storecache.New(storecache.Options[endpointKey, *account.Endpoint]{
		Read: func(ctx context.Context, key endpointKey) (*account.Endpoint, error) {
			if key.url != "" {
				return endpointAt(ctx, store, key.accountID, account.BindingKubernetes, key.url)
			}
			return store.Endpoint(ctx, key.accountID, key.id)
		},
		MaxEntries: maxCachedEndpoints,
	})
}

// endpoint returns the account's endpoint that the header names. A live one needs no query. A
// member of a pool may be deleted while a forwarder still names it: then another endpoint at the
// URL is returned, if the header has the whole URL. While the store is away, so is one that an
// agent has bound here, where the endpoint itself is not known.
func (s *streams) endpoint(ctx context.Context, accountID string, header tunnel.OpenHeader) (*account.Endpoint, error) {
	if ep := s.members.endpoint(accountID, header.EndpointID); ep != nil {
		return ep, nil
	}
	ep, err := s.cache.Get(ctx, endpointKey{accountID: accountID, id: header.EndpointID})
	code := account.CodeOf(err)
	if code == account.CodeNotFound || code == account.CodeUnavailable {
		if other := s.members.Online(peers.Pool{AccountID: accountID, Binding: forwardedBinding(header.Host),
			Scheme: header.Scheme, Host: header.Host, Port: header.Port}); other != nil {
			return other, nil
		}
	}
	if code == account.CodeNotFound {
		return s.storedEndpoint(ctx, accountID, header, err)
	}
	return ep, err
}

// storedEndpoint returns an endpoint at the URL of a header that has the whole URL, in place of
// another member of its pool: a cloud endpoint, or one that an agent has bound over another server;
// the error missing when there is none.
func (s *streams) storedEndpoint(
	ctx context.Context, accountID string, header tunnel.OpenHeader, missing error,
) (*account.Endpoint, error) {
	url := account.EndpointURL{Scheme: header.Scheme, Host: header.Host, Port: header.Port}
	if header.Scheme == "" {
		return nil, missing
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	ep, err := endpointAt(ctx, s.store, accountID, forwardedBinding(header.Host), url.String())
	if account.CodeOf(err) == account.CodeNotFound || err == nil && !isUp(ep) {
		return nil, missing
	}
	return ep, err
}

// endpointByURL returns the account's endpoint of the kubernetes binding at the header's URL: one that
// is online, if there is one.
func (s *streams) endpointByURL(
	ctx context.Context, accountID string, header tunnel.OpenHeader,
) (*account.Endpoint, error) {
	if ep := s.members.Online(peers.Pool{AccountID: accountID, Binding: account.BindingKubernetes,
		Scheme: header.Scheme, Host: header.Host, Port: header.Port}); ep != nil {
		return ep, nil
	}
	url := account.EndpointURL{Scheme: header.Scheme, Host: header.Host, Port: header.Port}
	return s.cache.Get(ctx, endpointKey{accountID: accountID, url: url.String()})
}

// endpointAt returns the account's endpoint at the URL: one that is up, else any. The error is
// CodeNotFound when there is none.
func endpointAt(
	ctx context.Context, store account.Endpoints, accountID, binding, url string,
) (*account.Endpoint, error) {
	page, err := store.ListEndpoints(ctx, accountID, account.EndpointFilter{Bindings: []string{binding}, URL: url},
		account.Page{Limit: account.MaxPageLimit})
	switch {
	case err != nil:
		return nil, err
	case len(page.Endpoints) == 0:
		return nil, account.Errorf(account.CodeNotFound, "there is no endpoint %s", url)
	}
	at := slices.IndexFunc(page.Endpoints, func(ep account.Endpoint) bool { return isUp(&ep) })
	return store.Endpoint(ctx, accountID, page.Endpoints[max(at, 0)].ID) // a list has no policies
}

// isUp reports whether the endpoint is a cloud endpoint, or its agent is connected.
func isUp(ep *account.Endpoint) bool {
	return ep.Type == account.TypeCloud || ep.Status == account.StatusOnline
}

// unknownEndpointCode returns the refusal of an unknown endpoint: offline for one whose URL is
// still reserved for its agent.
func (s *streams) unknownEndpointCode(ctx context.Context, accountID, id string) tunnel.RefuseCode {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	reserved, err := s.store.EndpointReserved(ctx, accountID, id)
	switch {
	case err != nil:
		s.log.Error("the reservation of an endpoint could not be read", "endpoint", id, "err", err)
		return tunnel.RefusedInternal
	case reserved:
		return tunnel.RefusedOffline
	}
	return tunnel.RefusedUnknownEndpoint
}

func (s *streams) refuse(st *tunnel.Stream, code tunnel.RefuseCode) {
	s.meter.CountIncomingStream(code.String())
	if err := st.Refuse(code); err != nil {
		s.log.Debug("refusal not sent", "code", code.String(), "err", err)
	}
}
