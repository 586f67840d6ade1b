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

// maxProviders is how many providers are kept, with what they have learnt of their keys; the
// longest unused goes first.
const maxProviders = 1024

// providers makes a provider once for each account and config, and keeps it.
type providers struct {
	make   map[trafficpolicy.LoginKind]Factory
	client *http.Client

	mu   sync.Mutex
	at   map[providerKey]*list.Element // of *kept
	used list.List                     // the last used in front
}

type providerKey struct{ accountID, digest string }

type kept struct {
	key      providerKey
	provider Provider
}

func newProviders(factories map[trafficpolicy.LoginKind]Factory, client *http.Client) *providers {
	return &providers{make: factories, client: client, at: make(map[providerKey]*list.Element)}
}

// of returns the provider of a config.
func (p *providers) of(accountID string, c *trafficpolicy.LoginConfig) (Provider, error) {
	key := providerKey{accountID, c.Digest}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.at[key]; e != nil {
		p.used.MoveToFront(e)
		return e.Value.(*kept).provider, nil
	}
	factory := p.make[c.Kind]
	if factory == nil {
		return nil, ProviderError(fmt.Errorf("this server has no provider for %s", c.Kind))
	}
	provider, err := factory(c, p.client)
	if err != nil {
		return nil, ProviderError(fmt.Errorf("setting up the provider: %w", err))
	}
	p.at[key] = p.used.PushFront(&kept{key, provider})
	if p.used.Len() > maxProviders {
		oldest := p.used.Remove(p.used.Back()).(*kept)
		delete(p.at, oldest.key)
	}
	return provider, nil
}
