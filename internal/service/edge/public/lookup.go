// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package public

import (
	"context"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

const (
	// lookupTTL is how long a lookup is cached. It must leave enough of the second within which a
	// revoked grant or a deleted endpoint takes effect.
	lookupTTL = 250 * time.Millisecond
	// lookupStaleTTL is how long the last lookup is used while the store does not answer.
	lookupStaleTTL = time.Minute
	// maxLookups bounds the cache. Only existing endpoints are cached, so clients cannot fill it
	// with names.
	maxLookups = 10_000
)

type address struct {
	host string
	port int
}

type cachedEndpoint struct {
	endpoint *account.Endpoint
	readAt   time.Time
}

// endpointLookup finds endpoints by address and caches them for a moment.
type endpointLookup struct {
	fetch func(ctx context.Context, host string, port int) (*account.Endpoint, error)

	mu    sync.Mutex
	cache map[address]cachedEndpoint
}

func newLookup(fetch func(context.Context, string, int) (*account.Endpoint, error)) *endpointLookup {
	return &endpointLookup{fetch: fetch, cache: make(map[address]cachedEndpoint)}
}

// find returns the endpoint, nil when there is none of the scheme. The error is the store's.
func (l *endpointLookup) find(ctx context.Context, host string, port int, scheme string) (*account.Endpoint, error) {
	if host == "" {
		return nil, nil
	}
	ep, err := l.get(ctx, address{host, port})
	if err != nil || ep == nil || ep.Scheme != scheme {
		return nil, err
	}
	return ep, nil
}

// get returns the endpoint at the address, nil when there is none.
func (l *endpointLookup) get(ctx context.Context, a address) (*account.Endpoint, error) {
	l.mu.Lock()
	last, cached := l.cache[a]
	l.mu.Unlock()
	if cached && time.Since(last.readAt) < lookupTTL {
		return last.endpoint, nil
	}
	ep, err := l.fetch(ctx, a.host, a.port)
	switch {
	case account.CodeOf(err) == account.CodeNotFound:
		l.mu.Lock()
		delete(l.cache, a)
		l.mu.Unlock()
		return nil, nil
	case err != nil && cached && time.Since(last.readAt) < lookupStaleTTL:
		return last.endpoint, nil
	case err != nil:
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.cache) >= maxLookups {
		clear(l.cache)
	}
	l.cache[a] = cachedEndpoint{endpoint: ep, readAt: time.Now()}
	return ep, nil
}
