// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// keyMonitor looks up the keys of all open watches in each interval, so that a watch ends when its
// key is deleted or expires. It runs a goroutine only while there are watches. It is safe for
// concurrent use.
type keyMonitor struct {
	store    account.Authenticator
	interval time.Duration
	log      *slog.Logger

	mu   sync.Mutex
	open map[*watchedKey]struct{}
	stop context.CancelFunc
}

type watchedKey struct {
	use     account.CredentialUse
	revoked chan struct{}
	once    sync.Once
}

// add monitors a key until release is called. revoked is closed when the key is deleted or has
// expired, of a token also when that is no longer admitted.
func (k *keyMonitor) add(use account.CredentialUse) (revoked <-chan struct{}, release func()) {
	w := &watchedKey{use: use, revoked: make(chan struct{})}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.open == nil {
		k.open = map[*watchedKey]struct{}{}
	}
	k.open[w] = struct{}{}
	if len(k.open) == 1 {
		ctx, stop := context.WithCancel(context.Background())
		k.stop = stop
		go k.run(ctx)
	}
	return w.revoked, func() { k.remove(w) }
}

func (k *keyMonitor) remove(w *watchedKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.open, w)
	if len(k.open) == 0 {
		k.stop()
	}
}

func (k *keyMonitor) run(ctx context.Context) {
	tick := time.NewTicker(k.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := k.check(ctx); err != nil && ctx.Err() == nil {
			k.log.LogAttrs(ctx, slog.LevelWarn, "looking up the keys of open watches", slog.String("err", err.Error()))
		}
	}
}

func (k *keyMonitor) check(ctx context.Context) error {
	k.mu.Lock()
	open := slices.Collect(maps.Keys(k.open))
	k.mu.Unlock()
	if len(open) == 0 {
		return nil
	}
	uses := make(map[account.CredentialUse]bool)
	for _, w := range open {
		uses[w.use] = true
	}
	alive, err := k.store.LiveCredentials(ctx, slices.Collect(maps.Keys(uses)))
	if err != nil {
		return err // the watches end by it too: they read the same store
	}
	for _, w := range open {
		if !alive[w.use] {
			w.once.Do(func() { close(w.revoked) })
		}
	}
	return nil
}
