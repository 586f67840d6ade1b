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
	// lookupFresh is how long an endpoint is taken for the one at its address without asking again.
	// With the time that a revoked grant or a deleted endpoint may live on (1 s), it leaves enough for
	// everything else.
	lookupFresh = 250 * time.Millisecond
	// lookupStale is how long the last answer is good while the store gives none.
	lookupStale = time.Minute
	// lookupMost bounds the answers that are kept. They are of endpoints that exist: strangers cannot
	// fill it with names.
	lookupMost = 10_000
)

type address struct {
	host string
	port int
}

type found struct {
	endpoint *account.Endpoint
	at       time.Time
}

// lookup finds endpoints by their address and remembers them for a moment.
type lookup struct {
	ask func(ctx context.Context, host string, port int) (*account.Endpoint, error)

	mu    sync.Mutex
	known map[address]found
}

func newLookup(ask func(context.Context, string, int) (*account.Endpoint, error)) *lookup {
	return &lookup{ask: ask, known: make(map[address]found)}
}

// find returns the endpoint, nil when there is none of the scheme. The error is the store's.
func (l *lookup) find(ctx context.Context, host string, port int, scheme string) (*account.Endpoint, error) {
	if host == "" {
		return nil, nil
	}
	ep, err := l.at(ctx, address{host, port})
	if err != nil || ep == nil || ep.Scheme != scheme {
		return nil, err
	}
	return ep, nil
}

func (l *lookup) at(ctx context.Context, a address) (*account.Endpoint, error) {
	l.mu.Lock()
	last, known := l.known[a]
	l.mu.Unlock()
	if known && time.Since(last.at) < lookupFresh {
		return last.endpoint, nil
	}
	ep, err := l.ask(ctx, a.host, a.port)
	switch {
	case account.CodeOf(err) == account.CodeNotFound:
		l.mu.Lock()
		delete(l.known, a)
		l.mu.Unlock()
		return nil, nil
	case err != nil && known && time.Since(last.at) < lookupStale:
		return last.endpoint, nil
	case err != nil:
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.known) >= lookupMost {
		clear(l.known)
	}
	l.known[a] = found{endpoint: ep, at: time.Now()}
	return ep, nil
}
