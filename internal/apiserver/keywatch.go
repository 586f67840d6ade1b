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

// keyWatch looks up, all at once and a few times a second, the keys of open watches, so that a
// watch ends when its key is deleted or expires. It runs a goroutine only while there are watches.
type keyWatch struct {
	auth  account.Authenticator
	every time.Duration
	log   *slog.Logger

	mu   sync.Mutex
	open map[*watchedKey]struct{}
	stop context.CancelFunc
}

type watchedKey struct {
	id   string
	dead chan struct{}
	once sync.Once
}

// add watches a key until release is called; dead is closed when the key is no more.
func (k *keyWatch) add(id string) (dead <-chan struct{}, release func()) {
	w := &watchedKey{id: id, dead: make(chan struct{})}
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
	return w.dead, func() { k.remove(w) }
}

func (k *keyWatch) remove(w *watchedKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.open, w)
	if len(k.open) == 0 {
		k.stop()
	}
}

func (k *keyWatch) run(ctx context.Context) {
	tick := time.NewTicker(k.every)
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

func (k *keyWatch) check(ctx context.Context) error {
	k.mu.Lock()
	open := slices.Collect(maps.Keys(k.open))
	k.mu.Unlock()
	ids := make([]string, 0, len(open))
	for _, w := range open {
		ids = append(ids, w.id)
	}
	slices.Sort(ids)
	alive, err := k.auth.LiveCredentials(ctx, slices.Compact(ids))
	if err != nil {
		return err // without the store there is nothing to read for a watch either
	}
	for _, w := range open {
		if !alive[w.id] {
			w.once.Do(func() { close(w.dead) })
		}
	}
	return nil
}
