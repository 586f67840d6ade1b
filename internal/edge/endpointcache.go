// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"log/slog"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/storecache"
)

const (
	// endpointTTL is the time after which an endpoint is read again.
	endpointTTL = 500 * time.Millisecond
	// maxCachedEndpoints bounds the cached endpoints, and the pools
	maxCachedEndpoints = 10_000
)

// endpointCache caches endpoints that no agent holds. A change takes effect within a second, also
// on existing connections; the load on the store does not depend on the rate of requests. While the
// store is away, endpoints are used as they were.
type endpointCache struct {
	source Endpoints // nil = endpoints do not change
	log    *slog.Logger
	cache  *storecache.Cache[endpointKey, *account.Endpoint]
}

// endpointKey is an endpoint's id, or the URL of an internal endpoint.
type endpointKey struct{ accountID, id, url string }

func newEndpointCache(o *Options) *endpointCache {
	c := &endpointCache{source: o.Endpoints, log: o.Logger}
	c.cache = storecache.New(storecache.Options[endpointKey, *account.Endpoint]{
		Read: c.read, TTL: endpointTTL, MaxEntries: maxCachedEndpoints, CacheMissing: true,
	})
	return c
}

func (c *endpointCache) read(ctx context.Context, key endpointKey) (*account.Endpoint, error) {
	read, name := c.source.Endpoint, key.id
	if key.url != "" {
		read, name = c.source.InternalEndpoint, key.url
	}
	ep, err := read(ctx, key.accountID, name)
	if account.CodeOf(err) == account.CodeUnavailable {
		c.log.Debug("an endpoint could not be read; it is used as it was, where it was read before", "endpoint", name,
			"err", err)
	}
	return ep, err
}

// latest returns the current state of the endpoint: CodeEndpointUnknown when it was deleted. While
// the store does not answer, it returns the last state read, or ep: Options.Checker decides whether
// it may have changed.
func (c *endpointCache) latest(ctx context.Context, ep *account.Endpoint) (*account.Endpoint, error) {
	if c.source == nil {
		return ep, nil
	}
	latest, err := c.cache.GetOr(ctx, endpointKey{accountID: ep.AccountID, id: ep.ID}, ep)
	if account.CodeOf(err) == account.CodeNotFound {
		return nil, account.Errorf(account.CodeEndpointUnknown, "%s was deleted", ep.URL)
	}
	return latest, err
}

// first returns the first of the members that exists; nil when none does. While the store does not
// answer, members that were never read are passed over.
func (c *endpointCache) first(ctx context.Context, accountID string, members []member) *account.Endpoint {
	away := false
	for _, m := range members {
		key := endpointKey{accountID: accountID, id: m.id}
		if away { // one wait is enough
			if ep, ok := c.cache.Last(key); ok {
				return ep
			}
			continue
		}
		ep, err := c.cache.GetOr(ctx, key, nil)
		if err == nil && ep != nil {
			return ep
		}
		away = err == nil // else it was deleted just now
	}
	return nil
}

// expire makes the next use of each endpoint of the account read it.
func (c *endpointCache) expire(accountID string) {
	c.cache.Expire(func(key endpointKey, _ *account.Endpoint) bool { return key.accountID == accountID })
}

// getInternal returns an internal endpoint by its URL; CodeNoInternal when the account has none.
func (c *endpointCache) getInternal(ctx context.Context, accountID, url string) (*account.Endpoint, error) {
	missing := account.Errorf(account.CodeNoInternal, "there is no internal endpoint %s", url)
	if c.source == nil {
		return nil, missing
	}
	ep, err := c.cache.Get(ctx, endpointKey{accountID: accountID, url: url})
	if account.CodeOf(err) == account.CodeNotFound {
		return nil, missing
	}
	return ep, err
}
