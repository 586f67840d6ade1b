// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"container/list"
	"fmt"
	"net/http"
	"sync"

	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// maxProviders is how many providers are cached, with their keys; the least recently used is
// evicted.
const maxProviders = 1024

// providerCache makes a provider once for each account and config. It is safe for concurrent use.
type providerCache struct {
	factories map[trafficpolicy.LoginKind]Factory
	client    *http.Client

	mu    sync.Mutex
	byKey map[providerKey]*list.Element // the values are *providerEntry
	lru   list.List                     // the last used in front
}

type providerKey struct{ accountID, digest string }

type providerEntry struct {
	key      providerKey
	provider Provider
}

func newProviderCache(factories map[trafficpolicy.LoginKind]Factory, client *http.Client) *providerCache {
	return &providerCache{factories: factories, client: client, byKey: make(map[providerKey]*list.Element)}
}

func (c *providerCache) newProvider(config *trafficpolicy.LoginConfig) (Provider, error) {
	factory := c.factories[config.Kind]
	if factory == nil {
		return nil, ProviderError(fmt.Errorf("this server has no provider for %s", config.Kind))
	}
	provider, err := factory(config, c.client)
	if err != nil {
		return nil, ProviderError(fmt.Errorf("setting up the provider: %w", err))
	}
	return provider, nil
}

// get returns the provider of a config. One that is not used is not cached, and does not stay longer.
func (c *providerCache) get(accountID string, config *trafficpolicy.LoginConfig, used bool) (Provider, error) {
	key := providerKey{accountID, config.Digest}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byKey[key]; e != nil {
		if used {
			c.lru.MoveToFront(e)
		}
		return e.Value.(*providerEntry).provider, nil
	}
	provider, err := c.newProvider(config)
	if err != nil || !used {
		return provider, err
	}
	c.byKey[key] = c.lru.PushFront(&providerEntry{key, provider})
	if c.lru.Len() > maxProviders {
		oldest := c.lru.Remove(c.lru.Back()).(*providerEntry)
		delete(c.byKey, oldest.key)
	}
	return provider, nil
}
