// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package saml

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// When metadata is fetched.
const (
	refreshInterval = time.Hour
	retryInterval   = time.Minute    // after the last try, successful or not
	maxStale        = 24 * time.Hour // cached metadata is used while its URL fails
	fetchTimeout    = 10 * time.Second
)

// metadataSource provides an identity provider's metadata from a text, or from a URL that it
// fetches when needed. It is safe for concurrent use.
type metadataSource struct {
	url    string // url is "" if the text was given.
	client *http.Client
	now    func() time.Time

	fetchLock chan struct{} // fetchLock holds one value during a fetch.

	mu      sync.Mutex
	entity  *entity // entity is nil until the first fetch.
	fetched time.Time
	lastTry time.Time
	lastErr error // lastErr is that of the last try.
}

// get returns the identity provider. A caller that needs a key that an entity lacks passes that
// entity as stale; get then fetches the URL again, at most once in retryInterval.
func (s *metadataSource) get(ctx context.Context, stale *entity) (*entity, error) {
	if known, ok, err := s.cached(stale); ok {
		return known, err
	}
	select {
	case s.fetchLock <- struct{}{}:
	default: // another caller fetches: the cached entity is used meanwhile
		if known, err := s.current(); err == nil {
			return known, nil
		}
		select {
		case s.fetchLock <- struct{}{}:
		case <-ctx.Done():
			return nil, metadataUnavailable(ctx.Err())
		}
	}
	defer func() { <-s.fetchLock }()
	if known, ok, err := s.cached(stale); ok { // another caller has fetched meanwhile
		return known, err
	}
	fresh, err := s.fetch(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastTry, s.lastErr = s.now(), err
	if err == nil {
		s.entity, s.fetched = fresh, s.now()
	}
	return s.validLocked()
}

// cached returns the cached entity; ok reports whether it can be used without a fetch.
func (s *metadataSource) cached(stale *entity) (known *entity, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	fresh := s.entity != nil && now.Sub(s.fetched) < refreshInterval && s.entity != stale
	if s.url == "" || fresh || (!s.lastTry.IsZero() && now.Sub(s.lastTry) < retryInterval) {
		known, err = s.validLocked()
		return known, true, err
	}
	return nil, false, nil
}

func (s *metadataSource) current() (*entity, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.validLocked()
}

// validLocked returns the cached entity while it may be used. mu must be held.
func (s *metadataSource) validLocked() (*entity, error) {
	now := s.now()
	switch {
	case s.entity == nil:
		return nil, metadataUnavailable(s.lastErr)
	case !s.entity.validUntil.IsZero() && now.After(s.entity.validUntil):
		return nil, metadataUnavailable(fmt.Errorf("the metadata was valid until %s (validUntil)",
			s.entity.validUntil.Format(time.RFC3339)))
	case s.url != "" && now.Sub(s.fetched) > maxStale:
		return nil, metadataUnavailable(s.lastErr)
	}
	return s.entity, nil
}

func (s *metadataSource) fetch(ctx context.Context) (*entity, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("fetching metadata: %w", err)
	}
	r.Header.Set("Accept", "application/samlmetadata+xml, application/xml, text/xml")
	resp, err := s.client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("fetching metadata: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("fetching metadata from %s: status %d", s.url, resp.StatusCode)
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, int64(metadataLimits.bytes)+1))
	if err != nil {
		return nil, fmt.Errorf("fetching metadata from %s: %w", s.url, err)
	}
	e, err := parseMetadata(raw)
	if err != nil {
		return nil, fmt.Errorf("reading the metadata of %s: %w", s.url, err)
	}
	return e, nil
}

// metadataUnavailable makes the error of logins while there is no usable metadata.
func metadataUnavailable(cause error) error {
	if errors.Is(cause, context.Canceled) {
		cause = fmt.Errorf("the browser has ended the request: %w", cause)
	}
	return &account.Error{Code: account.CodeProviderFailed,
		Msg: "The identity provider's metadata cannot be used now. Try again in a minute.", Cause: cause}
}
