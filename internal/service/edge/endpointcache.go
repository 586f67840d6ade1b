// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

const (
	// after which an endpoint is read again
	endpointTTL         = 500 * time.Millisecond
	endpointReadTimeout = 3 * time.Second // of one read of the store
	endpointIdleTTL     = time.Minute     // after which an unused entry may be evicted
	maxCachedEndpoints  = 4096            // from which on idle entries are evicted
)

// endpointCache caches endpoints that no agent holds. A change takes effect within a second, also
// on existing connections; the load on the store does not depend on the rate of requests.
type endpointCache struct {
	getByID  func(ctx context.Context, accountID, id string) (*account.Endpoint, error)
	getByURL func(ctx context.Context, accountID, url string) (*account.Endpoint, error)
	log      *slog.Logger

	mu      sync.Mutex
	entries map[endpointKey]*cacheEntry
}

// endpointKey is an endpoint's id, or the URL of an internal endpoint.
type endpointKey struct{ accountID, id, url string }

// cacheEntry is the result of the last read, guarded by endpointCache.mu.
type cacheEntry struct {
	endpoint *account.Endpoint
	err      error // CodeNotFound: it does not exist
	readAt   time.Time
	// closed when the read in progress ends; nil = none is in progress
	reading chan struct{}
}

// latest returns the current state of the endpoint: CodeEndpointUnknown when it was deleted. While
// the store does not answer, it returns the last state read, or ep: nothing can have changed then.
func (c *endpointCache) latest(ctx context.Context, ep *account.Endpoint) (*account.Endpoint, error) {
	if c.getByID == nil {
		return ep, nil
	}
	latest, err := c.get(ctx, ep.AccountID, ep.ID)
	switch {
	case account.CodeOf(err) == account.CodeNotFound:
		return nil, account.Errorf(account.CodeEndpointUnknown, "%s was deleted", ep.URL)
	case err != nil && ctx.Err() == nil:
		c.log.Debug("an endpoint could not be read again; it is used as it was", "endpoint", ep.ID, "err", err)
		return ep, nil
	}
	return latest, err
}

// get returns the endpoint with the id, at most endpointTTL old unless the store does not answer;
// CodeNotFound when it was deleted.
func (c *endpointCache) get(ctx context.Context, accountID, id string) (*account.Endpoint, error) {
	return c.load(ctx, endpointKey{accountID: accountID, id: id}, func(ctx context.Context) (*account.Endpoint, error) {
		return c.getByID(ctx, accountID, id)
	})
}

// getInternal returns an internal endpoint by its URL; CodeNoInternal when the account has none.
func (c *endpointCache) getInternal(ctx context.Context, accountID, url string) (*account.Endpoint, error) {
	missing := account.Errorf(account.CodeNoInternal, "there is no internal endpoint %s", url)
	if c.getByURL == nil {
		return nil, missing
	}
	ep, err := c.load(ctx, endpointKey{accountID: accountID, url: url},
		func(ctx context.Context) (*account.Endpoint, error) {
			return c.getByURL(ctx, accountID, url)
		})
	if account.CodeOf(err) == account.CodeNotFound {
		return nil, missing
	}
	return ep, err
}

// load returns the cached result while it is fresh, else that of fetch. While another caller
// fetches, it returns the cached result unless that is older than twice endpointTTL.
func (c *endpointCache) load(
	ctx context.Context, key endpointKey, fetch func(context.Context) (*account.Endpoint, error),
) (*account.Endpoint, error) {
	c.mu.Lock()
	entry := c.entries[key]
	if entry == nil {
		c.evictIdleLocked()
		entry = &cacheEntry{}
		c.entries[key] = entry
	}
	for entry.reading != nil && time.Since(entry.readAt) > 2*endpointTTL {
		done := entry.reading
		c.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		c.mu.Lock()
	}
	if entry.reading != nil || time.Since(entry.readAt) < endpointTTL {
		defer c.mu.Unlock()
		return entry.endpoint, entry.err
	}
	entry.reading = make(chan struct{})
	c.mu.Unlock()
	// Not canceled with the client: others wait for the result too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endpointReadTimeout)
	defer cancel()
	ep, err := fetch(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	close(entry.reading)
	entry.reading, entry.readAt = nil, time.Now()
	if err == nil || account.CodeOf(err) == account.CodeNotFound || entry.endpoint == nil {
		entry.endpoint, entry.err = ep, err
	} else {
		c.log.Debug("an endpoint could not be read again; it is used as it was", "endpoint", entry.endpoint.ID, "err",
			err)
	}
	return entry.endpoint, entry.err
}

// evictIdleLocked drops entries that were not read for a while, once there are many; mu must be
// held.
func (c *endpointCache) evictIdleLocked() {
	if len(c.entries) < maxCachedEndpoints {
		return
	}
	for key, entry := range c.entries {
		if entry.reading == nil && time.Since(entry.readAt) > endpointIdleTTL {
			delete(c.entries, key)
		}
	}
}
