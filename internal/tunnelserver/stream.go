// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Stream checks a stream that a forwarder opened and hands it over. The stream names its endpoint
// and that one's URL: what does not fit is refused, so a listener that outlived its endpoint never
// reaches another one's upstream. Who serves it is chosen by the URL.
func (s *Server) Stream(ctx context.Context, ts *tunnel.Session, st *tunnel.Stream) {
	t := s.session(ts.ID())
	if t == nil || t.hello.Role != tunnel.RoleForwarder {
		s.refuse(st, tunnel.RefusedForbidden)
		return
	}
	if s.isDraining() {
		s.refuse(st, tunnel.RefusedDraining)
		return
	}
	h := st.Header()
	ep, err := s.endpoint(ctx, t.accountID, h)
	switch {
	case err == nil && ep.Bindings[0] != account.BindingKubernetes: // whatever it says: not from a cluster
		s.refuse(st, tunnel.RefusedUnknownEndpoint)
	case account.CodeOf(err) == account.CodeNotFound:
		s.refuse(st, s.unknown(ctx, t.accountID, h.EndpointID))
	case err != nil:
		s.log.Error("the endpoint of a stream could not be read", "endpoint", h.EndpointID, "err", err)
		s.refuse(st, tunnel.RefusedInternal)
	case ep.Host != h.Host || ep.Port != h.Port || h.Scheme != "" && ep.Scheme != h.Scheme:
		s.refuse(st, tunnel.RefusedMismatch)
	default:
		s.opt.OnOpen("accepted")
		tell := func(line tunnel.RequestLine) {
			line.EndpointID = h.EndpointID // which the forwarder knows; ep may be another of the pool
			ts.SendRequestLine(line)
		}
		s.opt.Serve(ctx, Incoming{Stream: st, Endpoint: ep, OperatorID: t.operatorID, Cluster: t.cluster,
			Draining: ts.PeerDraining(), ReportLine: tell})
	}
}

// endpoint finds the account's endpoint that the header names, the live one first: that costs no
// query. A member of a pool may be gone for good while a forwarder still names it: then the others
// stand for the URL, if the header has it whole.
func (s *Server) endpoint(ctx context.Context, accountID string, header tunnel.OpenHeader) (*account.Endpoint, error) {
	s.mu.Lock()
	h := s.holdings[header.EndpointID]
	s.mu.Unlock()
	if h != nil && h.session.accountID == accountID {
		return h.Endpoint(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	ep, err := s.opt.Endpoints.Endpoint(ctx, accountID, header.EndpointID)
	if account.CodeOf(err) == account.CodeNotFound {
		if other := s.anyAt(place{accountID, account.BindingKubernetes, header.Scheme, header.Host,
			header.Port}); other != nil {
			return other, nil
		}
		return s.cloudAt(ctx, accountID, header, err)
	}
	return ep, err
}

// cloudAt finds a cloud endpoint at the URL of a header that has it whole, in the place of another
// member of its pool; missing when there is none.
func (s *Server) cloudAt(
	ctx context.Context, accountID string, header tunnel.OpenHeader, missing error,
) (*account.Endpoint, error) {
	url := account.EndpointURL{Scheme: header.Scheme, Host: header.Host, Port: header.Port}
	if header.Scheme == "" {
		return nil, missing
	}
	page, err := s.opt.Endpoints.ListEndpoints(ctx, accountID,
		account.EndpointFilter{Binding: account.BindingKubernetes, URL: url.String()}, account.Page{Limit: 1})
	switch {
	case err != nil:
		return nil, err
	case len(page.Endpoints) == 0 || page.Endpoints[0].Type != account.TypeCloud:
		return nil, missing
	}
	return s.opt.Endpoints.Endpoint(ctx, accountID, page.Endpoints[0].ID) // a list has no policies
}

// unknown is what a forwarder hears of an endpoint that is not there: whoever calls one whose agent
// has been away for longer than the grace, or has just said goodbye, is told that it is offline, as
// before.
func (s *Server) unknown(ctx context.Context, accountID, id string) tunnel.RefuseCode {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	reserved, err := s.opt.Endpoints.EndpointReserved(ctx, accountID, id)
	switch {
	case err != nil:
		s.log.Error("the reservation of an endpoint could not be read", "endpoint", id, "err", err)
		return tunnel.RefusedInternal
	case reserved:
		return tunnel.RefusedOffline
	}
	return tunnel.RefusedUnknownEndpoint
}

func (s *Server) refuse(st *tunnel.Stream, code tunnel.RefuseCode) {
	s.opt.OnOpen(code.String())
	if err := st.Refuse(code); err != nil {
		s.log.Debug("refusal not sent", "code", code.String(), "err", err)
	}
}
