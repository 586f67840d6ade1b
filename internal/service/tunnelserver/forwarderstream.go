// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"log/slog"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/peers"
	"github.com/fairlead-dev/fairlead/internal/service/storecache"
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
// never reaches another upstream. The serving member is chosen by the URL.
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
	ep, err := s.endpoint(ctx, t.accountID, h)
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
		s.meter.CountIncomingStream("accepted")
		s.edge.ServeStream(ctx, Incoming{Stream: st, Endpoint: ep, OperatorID: t.operatorID, Cluster: t.cluster,
			Draining: ts.PeerDraining(), Forwarder: Forwarder{ts, h.EndpointID}})
	}
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

// endpointKey is an account's endpoint.
type endpointKey struct{ accountID, id string }

// newEndpointCache makes a cache that asks the store each time and uses its answers during outages.
func newEndpointCache(store account.Endpoints) *storecache.Cache[endpointKey, *account.Endpoint] {
	return storecache.New(storecache.Options[endpointKey, *account.Endpoint]{
		Read: func(ctx context.Context, key endpointKey) (*account.Endpoint, error) {
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
	ep, err := s.cache.Get(ctx, endpointKey{accountID, header.EndpointID})
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
	page, err := s.store.ListEndpoints(ctx, accountID,
		account.EndpointFilter{Bindings: []string{forwardedBinding(header.Host)}, URL: url.String()},
		account.Page{Limit: account.MaxPageLimit})
	if err != nil {
		return nil, err
	}
	for _, ep := range page.Endpoints {
		if ep.Type == account.TypeCloud || ep.Status == account.StatusOnline {
			return s.store.Endpoint(ctx, accountID, ep.ID) // a list has no policies
		}
	}
	return nil, missing
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
