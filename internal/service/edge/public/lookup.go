// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package public

import (
	"context"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/storecache"
)

const (
	// lookupTTL is how long a lookup is cached. It must leave enough of the second within which a
	// revoked grant or a deleted endpoint takes effect.
	lookupTTL = 250 * time.Millisecond
	// maxLookups bounds the cache. Only existing endpoints are cached, so clients cannot fill it
	// with names.
	maxLookups = 10_000
)

type address struct {
	host string
	port int
}

// endpointLookup finds endpoints by address. While the store is away, the last answers are used,
// and the endpoints that agents have bound on this server.
type endpointLookup struct {
	endpoints *storecache.Cache[address, *account.Endpoint]
}

func newLookup(endpoints Endpoints) *endpointLookup {
	return &endpointLookup{storecache.New(storecache.Options[address, *account.Endpoint]{
		Read: func(ctx context.Context, a address) (*account.Endpoint, error) {
			return endpoints.FindEndpoint(ctx, a.host, a.port)
		},
		Held: func(a address) (*account.Endpoint, time.Time, bool) {
			ep, since := endpoints.OnlinePublic(a.host, a.port)
			return ep, since, ep != nil
		},
		TTL: lookupTTL, MaxEntries: maxLookups,
	})}
}

// expire makes the next lookup of each endpoint of the account, and of what was not found, ask the
// store.
func (l *endpointLookup) expire(accountID string) {
	l.endpoints.Expire(func(_ address, ep *account.Endpoint) bool { return ep == nil || ep.AccountID == accountID })
}

// forget drops what is known of the account's endpoints.
func (l *endpointLookup) forget(accountID string) {
	l.endpoints.Forget(func(_ address, ep *account.Endpoint) bool { return ep != nil && ep.AccountID == accountID })
}

// find returns the endpoint, nil when there is none of the scheme. The error is the store's.
func (l *endpointLookup) find(ctx context.Context, host string, port int, scheme string) (*account.Endpoint, error) {
	if host == "" {
		return nil, nil
	}
	ep, err := l.endpoints.Get(ctx, address{host, port})
	switch {
	case account.CodeOf(err) == account.CodeNotFound:
		return nil, nil
	case err != nil || ep.Scheme != scheme:
		return nil, err
	}
	return ep, nil
}
