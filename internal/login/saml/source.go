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
	refreshEvery = time.Hour
	retryAfter   = time.Minute    // the last try, whatever came of it
	staleFor     = 24 * time.Hour // metadata stays in use while its URL does not answer
	fetchTimeout = 10 * time.Second
)

// source is where an identity provider's metadata comes from: a text, or a URL that is asked when
// somebody needs it. Safe for concurrent use.
type source struct {
	url    string // "" = the text was given
	client *http.Client
	now    func() time.Time

	asking chan struct{} // holds one token while somebody asks the URL

	mu      sync.Mutex
	known   *entity // nil = never fetched
	fetched time.Time
	tried   time.Time
	failure error // of the last try; nil when it succeeded
}

// entity returns the identity provider. Whoever has met a signature by a key that seen does not
// have passes seen, nil otherwise: then the URL is asked again, unless that has just been done.
func (s *source) entity(ctx context.Context, seen *entity) (*entity, error) {
	if known, ok, err := s.have(seen); ok {
		return known, err
	}
	select {
	case s.asking <- struct{}{}:
	default: // somebody else is asking: what is known will do meanwhile
		if known, err := s.current(); err == nil {
			return known, nil
		}
		select {
		case s.asking <- struct{}{}:
		case <-ctx.Done():
			return nil, unavailable(ctx.Err())
		}
	}
	defer func() { <-s.asking }()
	if known, ok, err := s.have(seen); ok { // somebody else has asked meanwhile
		return known, err
	}
	fresh, err := s.fetch(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried, s.failure = s.now(), err
	if err == nil {
		s.known, s.fetched = fresh, s.now()
	}
	return s.valid()
}

// have returns what is known, ok when it will do.
func (s *source) have(seen *entity) (known *entity, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	fresh := s.known != nil && now.Sub(s.fetched) < refreshEvery && s.known != seen
	if s.url == "" || fresh || (!s.tried.IsZero() && now.Sub(s.tried) < retryAfter) {
		known, err = s.valid()
		return known, true, err
	}
	return nil, false, nil
}

func (s *source) current() (*entity, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.valid()
}

// valid returns what is known while it may be used. The lock is held.
func (s *source) valid() (*entity, error) {
	now := s.now()
	switch {
	case s.known == nil:
		return nil, unavailable(s.failure)
	case !s.known.until.IsZero() && now.After(s.known.until):
		return nil, unavailable(fmt.Errorf("the metadata was valid until %s (validUntil)",
			s.known.until.Format(time.RFC3339)))
	case s.url != "" && now.Sub(s.fetched) > staleFor:
		return nil, unavailable(s.failure)
	}
	return s.known, nil
}

func (s *source) fetch(ctx context.Context) (*entity, error) {
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
	raw, err := io.ReadAll(io.LimitReader(resp.Body, int64(ofMetadata.bytes)+1))
	if err != nil {
		return nil, fmt.Errorf("fetching metadata from %s: %w", s.url, err)
	}
	e, err := parseMetadata(raw)
	if err != nil {
		return nil, fmt.Errorf("reading the metadata of %s: %w", s.url, err)
	}
	return e, nil
}

// unavailable is the answer while nobody can log in, because the metadata is not to be had.
func unavailable(cause error) error {
	if errors.Is(cause, context.Canceled) {
		cause = fmt.Errorf("the browser has gone: %w", cause)
	}
	return &account.Error{Code: account.CodeProviderFailed,
		Msg: "The identity provider's metadata cannot be used now. Try again in a minute.", Cause: cause}
}
