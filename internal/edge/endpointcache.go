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
	currentAge  = 500 * time.Millisecond // after which an endpoint is read again
	currentRead = 3 * time.Second        // how long that may take
	currentKeep = time.Minute            // after which one that nobody asks for is forgotten
	maxCurrent  = 4096                   // when that is looked after
)

// current knows what endpoints are now that no agent holds: a change takes effect within a second,
// also on connections that were there before, and thousands of requests a second cost two queries.
type current struct {
	byID  func(ctx context.Context, accountID, id string) (*account.Endpoint, error)
	byURL func(ctx context.Context, accountID, url string) (*account.Endpoint, error)
	log   *slog.Logger

	mu  sync.Mutex
	all map[currentKey]*seen
}

// currentKey is an endpoint's id, or the URL of an internal one.
type currentKey struct{ accountID, id, url string }

// seen is what was read last, guarded by current.mu.
type seen struct {
	endpoint *account.Endpoint
	err      error // CodeNotFound: there is none
	at       time.Time
	reading  chan struct{} // closed when the read that is under way has ended; nil = none is
}

// endpoint returns the endpoint as it is now: CodeEndpointUnknown when it was deleted. While the
// store does not answer, ep or what was read last has to do: nothing can have been changed then.
func (c *current) endpoint(ctx context.Context, ep *account.Endpoint) (*account.Endpoint, error) {
	if c.byID == nil {
		return ep, nil
	}
	now, err := c.known(ctx, ep.AccountID, ep.ID)
	switch {
	case account.CodeOf(err) == account.CodeNotFound:
		return nil, account.Errorf(account.CodeEndpointUnknown, "%s was deleted", ep.URL)
	case err != nil && ctx.Err() == nil:
		c.log.Debug("an endpoint could not be read again; it is used as it was", "endpoint", ep.ID, "err", err)
		return ep, nil
	}
	return now, err
}

// known returns the endpoint of an id, as it is now or was read last; CodeNotFound when it was
// deleted.
func (c *current) known(ctx context.Context, accountID, id string) (*account.Endpoint, error) {
	return c.read(ctx, currentKey{accountID: accountID, id: id}, func(ctx context.Context) (*account.Endpoint, error) {
		return c.byID(ctx, accountID, id)
	})
}

// internal finds an internal endpoint by its URL; CodeNoInternal when the account has none.
func (c *current) internal(ctx context.Context, accountID, url string) (*account.Endpoint, error) {
	missing := account.Errorf(account.CodeNoInternal, "there is no internal endpoint %s", url)
	if c.byURL == nil {
		return nil, missing
	}
	now, err := c.read(ctx, currentKey{accountID: accountID, url: url},
		func(ctx context.Context) (*account.Endpoint, error) {
			return c.byURL(ctx, accountID, url)
		})
	if account.CodeOf(err) == account.CodeNotFound {
		return nil, missing
	}
	return now, err
}

// read returns what is known, if that is new, else what get reads. Who comes while another one
// reads gets what was known, unless that is old.
func (c *current) read(
	ctx context.Context, key currentKey, get func(context.Context) (*account.Endpoint, error),
) (*account.Endpoint, error) {
	c.mu.Lock()
	s := c.all[key]
	if s == nil {
		c.sweep()
		s = &seen{}
		c.all[key] = s
	}
	for s.reading != nil && time.Since(s.at) > 2*currentAge {
		done := s.reading
		c.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		c.mu.Lock()
	}
	if s.reading != nil || time.Since(s.at) < currentAge {
		defer c.mu.Unlock()
		return s.endpoint, s.err
	}
	s.reading = make(chan struct{})
	c.mu.Unlock()
	// Not by the client's context: others wait for it, too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), currentRead)
	defer cancel()
	ep, err := get(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	close(s.reading)
	s.reading, s.at = nil, time.Now()
	if err == nil || account.CodeOf(err) == account.CodeNotFound || s.endpoint == nil {
		s.endpoint, s.err = ep, err
	} else {
		c.log.Debug("an endpoint could not be read again; it is used as it was", "endpoint", s.endpoint.ID, "err", err)
	}
	return s.endpoint, s.err
}

// sweep forgets what nobody has asked for, once much is known. The caller holds mu.
func (c *current) sweep() {
	if len(c.all) < maxCurrent {
		return
	}
	for key, s := range c.all {
		if s.reading == nil && time.Since(s.at) > currentKeep {
			delete(c.all, key)
		}
	}
}
