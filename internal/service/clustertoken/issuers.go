// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertoken

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/sync/singleflight"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Intervals of reading the keys of an issuer.
const (
	issuerMaxAge   = time.Hour   // for a cluster's keys, on each server
	issuerInterval = time.Minute // between two readings for unknown keys: anyone can send such tokens
	issuerTimeout  = 10 * time.Second
)

// Issuers reads the keys that the issuers of clusters with account.KeysFromIssuer publish, by
// OpenID Connect Discovery 1.0. It is safe for concurrent use.
type Issuers struct {
	store  account.IssuerKeys
	client *http.Client // client checks the addresses that it connects to, and bounds answers.
	log    *slog.Logger

	reading singleflight.Group // reading merges the readings of one cluster's issuer, by the cluster's ID.
	mu      sync.Mutex
	next    map[string]time.Time // next is the time of the next reading for an unknown key, by cluster ID.
}

// NewIssuers returns Issuers that read with the client.
func NewIssuers(store account.IssuerKeys, client *http.Client, log *slog.Logger) *Issuers {
	return &Issuers{store: store, client: client, log: log, next: make(map[string]time.Time)}
}

// Run reads the keys of all clusters every hour, the first time at once, until ctx is done.
func (i *Issuers) Run(ctx context.Context) {
	tick := time.NewTicker(issuerMaxAge)
	defer tick.Stop()
	for {
		clusters, err := i.store.IssuerClusters(ctx, "", "")
		if err != nil && ctx.Err() == nil {
			i.log.Warn("the clusters whose issuers publish keys could not be read", "err", err)
		}
		for n := range clusters {
			if err := i.read(ctx, &clusters[n]); err != nil && ctx.Err() == nil {
				i.log.Warn("the keys of a cluster's issuer could not be read", "cluster", clusters[n].ID,
					"issuer", clusters[n].Issuer, "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// readFor reads the keys of the clusters that a token with an unknown key may be of, and reports
// whether there is any such cluster. The error says why the keys could not be read.
func (i *Issuers) readFor(ctx context.Context, t *token, now time.Time) (bool, error) {
	clusters, err := i.store.IssuerClusters(ctx, t.accountID, t.claims.Issuer)
	if err != nil || len(clusters) == 0 {
		return false, err
	}
	for n := range clusters {
		err = errors.Join(err, i.readForUnknown(ctx, &clusters[n], now))
	}
	return true, err
}

// readForUnknown is read for a key that is not known, for all callers together, at most once a
// minute.
func (i *Issuers) readForUnknown(ctx context.Context, c *account.Cluster, now time.Time) error {
	done := i.reading.DoChan(c.ID, func() (any, error) {
		if !i.isDue(c.ID, now) {
			return nil, nil
		}
		return nil, i.read(context.WithoutCancel(ctx), c)
	})
	select {
	case result := <-done:
		return result.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// isDue reports whether a minute has passed since it was last true for the cluster.
func (i *Issuers) isDue(id string, now time.Time) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if now.Before(i.next[id]) {
		return false
	}
	i.next[id] = now.Add(issuerInterval)
	return true
}

// read reads the keys of a cluster's issuer and hands them to the store.
func (i *Issuers) read(ctx context.Context, c *account.Cluster) error {
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, i.client), issuerTimeout)
	defer cancel()
	provider, err := oidc.NewProvider(ctx, c.Issuer)
	if err != nil {
		return fmt.Errorf("reading %s/.well-known/openid-configuration: %w", strings.TrimSuffix(c.Issuer, "/"), err)
	}
	var document struct {
		URI string `json:"jwks_uri"`
	}
	if err := provider.Claims(&document); err != nil {
		return fmt.Errorf("reading the issuer's description: %w", err)
	}
	keys, err := i.download(ctx, document.URI)
	if err != nil {
		return err
	}
	return i.store.LearnPublished(ctx, c, keys)
}

// download reads the keys at a jwks_uri. A key with which no ServiceAccount's token is accepted
// makes the whole set invalid, as in a set that an administrator gives.
func (i *Issuers) download(ctx context.Context, uri string) (account.KeySet, error) {
	if !strings.HasPrefix(uri, "https://") {
		return account.KeySet{}, fmt.Errorf("the issuer's jwks_uri is %q, which is no https URL", account.Shorten(uri))
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, uri, nil)
	if err != nil {
		return account.KeySet{}, fmt.Errorf("the issuer's jwks_uri %q is no URL", account.Shorten(uri))
	}
	res, err := i.client.Do(r)
	if err != nil {
		return account.KeySet{}, fmt.Errorf("reading the issuer's keys: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return account.KeySet{}, fmt.Errorf("%s answers with status %d", account.Shorten(uri), res.StatusCode)
	}
	raw, err := io.ReadAll(io.LimitReader(res.Body, account.MaxKeySet+1))
	if err != nil {
		return account.KeySet{}, fmt.Errorf("reading the issuer's keys: %w", err)
	}
	return account.ParseKeySet(raw)
}
