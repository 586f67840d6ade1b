// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package public

import (
	"context"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/storecache"
)

const (
	// lookupTTL is how long a lookup is cached. It must leave enough of the second within which a
	// revoked grant or a deleted endpoint takes effect.
	lookupTTL = 250 * time.Millisecond
	// maxLookups bounds the cache. Only existing endpoints are cached, so clients cannot fill it
	// with names.
	maxLookups = 10_000
	// maxOddLookups bounds the cache of lookups at other ports than the usual ones: clients can fill
	// that one with ports.
	maxOddLookups = 1_000
)

// address is where a request wants to go.
type address struct {
	scheme, host string
	port         int
}

// endpointLookup finds endpoints by address. While the store is away, the last answers are used,
// and the endpoints that agents have bound on this server.
type endpointLookup struct {
	usual map[string][]int // usual has the ports of each scheme: its default, and the listener's.
	// endpoints has lookups at usual ports, odd those at others.
	endpoints, odd *storecache.Cache[address, *account.Endpoint]
}

func newLookup(endpoints Endpoints, usual map[string][]int) *endpointLookup {
	o := storecache.Options[address, *account.Endpoint]{
		Read: func(ctx context.Context, a address) (*account.Endpoint, error) {
			return endpoints.FindEndpoint(ctx, a.host, append([]int{a.port}, usual[a.scheme]...)...)
		},
		Held: func(a address) (*account.Endpoint, time.Time, bool) {
			ep, since := endpoints.OnlinePublic(a.host, a.port)
			return ep, since, ep != nil
		},
		TTL: lookupTTL, MaxEntries: maxLookups,
	}
	l := &endpointLookup{usual: usual, endpoints: storecache.New(o)}
	o.MaxEntries = maxOddLookups
	l.odd = storecache.New(o)
	return l
}

// expire makes the next lookup of each endpoint of the account, and of what was not found, ask the
// store.
func (l *endpointLookup) expire(accountID string) {
	of := func(_ address, ep *account.Endpoint) bool { return ep == nil || ep.AccountID == accountID }
	l.endpoints.Expire(of)
	l.odd.Expire(of)
}

// forget drops what is known of the account's endpoints.
func (l *endpointLookup) forget(accountID string) {
	of := func(_ address, ep *account.Endpoint) bool { return ep != nil && ep.AccountID == accountID }
	l.endpoints.Forget(of)
	l.odd.Forget(of)
}

// find returns the endpoint at host and port or, where no endpoint has these, the one at a usual
// port of the scheme: the port that clients use may be mapped to the listener's. It returns nil
// when there is none of the scheme. The error is the store's.
func (l *endpointLookup) find(ctx context.Context, host string, port int, scheme string) (*account.Endpoint, error) {
	if host == "" {
		return nil, nil
	}
	cache := l.odd
	if slices.Contains(l.usual[scheme], port) {
		cache = l.endpoints
	}
	ep, err := cache.Get(ctx, address{scheme, host, port})
	switch {
	case account.CodeOf(err) == account.CodeNotFound:
		return nil, nil
	case err != nil || ep.Scheme != scheme:
		return nil, err
	}
	return ep, nil
}
