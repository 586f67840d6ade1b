// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Intervals of fetching keys.
const (
	keysMaxAge   = time.Hour
	keysInterval = 5 * time.Second // between two fetches for unknown keys or after failures
	keysTimeout  = 10 * time.Second
)

// Limits of key sets.
const (
	maxKeySets = 1024
	maxKeys    = 256 // keys of one set
	maxTries   = 16  // keys that are tried for a token without a key ID
)

// algorithms are the accepted signature algorithms, all of them asymmetric.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.ES256, jose.ES384, jose.ES512, jose.PS256, jose.PS384, jose.PS512,
	jose.EdDSA,
}

// keySets has one keySet for each jwks_uri, shared by all actions. It is safe for concurrent use.
type keySets struct {
	cpu chan struct{} // cpu bounds the signatures that are verified at the same time.

	mu    sync.Mutex
	byURI map[string]*keySet
}

func newKeySets() *keySets {
	return &keySets{cpu: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)), byURI: make(map[string]*keySet)}
}

// forURI returns the key set of a jwks_uri. The client is used for all fetches of a set.
func (k *keySets) forURI(uri string, client *http.Client) *keySet {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.byURI[uri]
	if s == nil {
		if len(k.byURI) >= maxKeySets {
			clear(k.byURI) // sets in use keep working, unshared until the next discovery
		}
		s = &keySet{uri: uri, client: client, cpu: k.cpu}
		k.byURI[uri] = s
	}
	return s
}

// keySet fetches and caches the keys of one jwks_uri. A token that no cached key verifies causes a
// fetch, but there is at most one such fetch every keysInterval for all callers together, and keys
// are renewed every keysMaxAge. goidc.RemoteKeySet fetches for each token that does not verify, and
// never forgets a key that the provider has withdrawn. It is safe for concurrent use.
type keySet struct {
	uri    string
	client *http.Client
	cpu    chan struct{}

	mu       sync.Mutex
	cached   *keyList
	err      error         // err is the result of the last fetch.
	next     time.Time     // next is the earliest time of the next fetch.
	fetching chan struct{} // fetching is closed when the fetch that waits or is under way has ended.
}

// keyList is the result of a fetch that began at time at.
type keyList struct {
	keys []jose.JSONWebKey
	at   time.Time
}

// errFetchedRecently is the error of a fetch that is not due yet.
var errFetchedRecently = fmt.Errorf("the provider's keys were fetched less than %s ago", keysInterval)

// verifier is a goidc.KeySet for one token.
type verifier struct {
	*keySet
	// wait makes an unknown key wait for the next fetch. It is not set for tokens that anyone may
	// send.
	wait     bool
	fetchErr error // fetchErr is set if no keys are available, so that the token could not be checked.
}

// VerifySignature implements goidc.KeySet. It accepts the compact serialization only.
func (v *verifier) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	began := time.Now()
	jws, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		return nil, fmt.Errorf("the token is no compact JWS: %w", err)
	}
	list, err := v.get(ctx, began.Add(-keysMaxAge), false)
	if list == nil && v.wait {
		list, err = v.get(ctx, began, true)
	}
	if list == nil {
		v.fetchErr = fmt.Errorf("fetching keys: %w", err)
		return nil, v.fetchErr
	}
	payload, err := v.verify(ctx, jws, list)
	if err == nil || !list.at.Before(began) {
		return payload, err
	}
	newer, fetchErr := v.get(ctx, began, v.wait)
	switch {
	case errors.Is(fetchErr, errFetchedRecently):
		return nil, fmt.Errorf("%w; %w", err, fetchErr)
	case fetchErr != nil:
		v.fetchErr = fmt.Errorf("fetching keys: %w", fetchErr)
		return nil, v.fetchErr
	}
	return v.verify(ctx, jws, newer)
}

// verify returns the payload when one of the keys that the token may be signed with verifies it.
func (s *keySet) verify(ctx context.Context, jws *jose.JSONWebSignature, list *keyList) ([]byte, error) {
	select {
	case s.cpu <- struct{}{}:
		defer func() { <-s.cpu }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	tries, id := 0, jws.Signatures[0].Header.KeyID
	for i := range list.keys {
		if id != "" && list.keys[i].KeyID != id {
			continue
		}
		if payload, err := jws.Verify(&list.keys[i]); err == nil {
			return payload, nil
		}
		if tries++; tries == maxTries {
			break
		}
	}
	return nil, fmt.Errorf("none of the provider's keys verifies the token, which names the key %.60q", id)
}

// get returns keys of a fetch that began at since or later. With an error it returns the cached
// keys, if any.
func (s *keySet) get(ctx context.Context, since time.Time, wait bool) (*keyList, error) {
	s.mu.Lock()
	cached, delay := s.cached, time.Until(s.next)
	if cached != nil && !cached.at.Before(since) {
		s.mu.Unlock()
		return cached, nil
	}
	if s.fetching == nil && delay > 0 && !wait {
		defer s.mu.Unlock()
		if s.err != nil {
			return cached, s.err
		}
		return cached, errFetchedRecently
	}
	if s.fetching == nil {
		s.fetching = make(chan struct{})
		renewal := cached == nil || time.Since(cached.at) > keysMaxAge
		go s.fetch(context.WithoutCancel(ctx), delay, renewal)
	}
	fetching := s.fetching
	s.mu.Unlock()
	select {
	case <-fetching:
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.cached, s.err
	case <-ctx.Done():
		return cached, ctx.Err()
	}
}

// fetch fetches the keys after the delay. A failure leaves the cached ones. A renewal that succeeds
// does not delay the next fetch: the keys may be changed right after it.
func (s *keySet) fetch(ctx context.Context, delay time.Duration, renewal bool) {
	time.Sleep(delay)
	ctx, cancel := context.WithTimeout(ctx, keysTimeout)
	defer cancel()
	began := time.Now()
	keys, err := s.download(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err = err; err == nil {
		s.cached = &keyList{keys: keys, at: began}
	}
	if err != nil || !renewal {
		s.next = time.Now().Add(keysInterval)
	}
	close(s.fetching)
	s.fetching = nil
}

// download reads the keys. It skips keys of unsupported types, as RFC 7517 requires.
func (s *keySet) download(ctx context.Context) ([]jose.JSONWebKey, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.uri, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Cache-Control", "no-cache")
	res, err := s.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers with status %d", s.uri, res.StatusCode)
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.NewDecoder(res.Body).Decode(&set); err != nil {
		return nil, fmt.Errorf("reading %s: %w", s.uri, err)
	}
	var keys []jose.JSONWebKey
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if json.Unmarshal(raw, &key) == nil && key.IsPublic() && len(keys) < maxKeys {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s has no key for signatures that are accepted", s.uri)
	}
	return keys, nil
}
