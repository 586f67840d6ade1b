// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"bytes"
	"net/url"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// TestRevoke_ByDatabaseClock holds that logins and revocations are compared by the database's
// clock, which here is ten minutes behind the server's: by two clocks, a login that began before
// the revocation would count as later.
func TestRevoke_ByDatabaseClock(t *testing.T) {
	t.Parallel()
	server := postgres.Server(t)
	databaseURL := server.URL(t)
	storetest.Must(t, server.Exec(t.Context(), databaseURL, `CREATE FUNCTION clock_timestamp() RETURNS timestamptz
		LANGUAGE sql AS 'SELECT pg_catalog.clock_timestamp() - interval ''10 minutes'''`))
	parsed, err := url.Parse(databaseURL)
	storetest.Must(t, err)
	query := parsed.Query()
	query.Set("search_path", query.Get("search_path")+",pg_catalog") // the schema's functions come first
	parsed.RawQuery = query.Encode()
	key, err := seal.New(bytes.Repeat([]byte{7}, seal.KeySize))
	storetest.Must(t, err)
	s, err := store.Open(t.Context(), store.Options{DatabaseURL: parsed.String(), Key: key})
	storetest.Must(t, err)
	t.Cleanup(func() { storetest.Must(t, s.Close()) })
	made, err := s.CreateAccount(t.Context(), "first")
	storetest.Must(t, err)
	login := func(secret string, began time.Time) (*account.LiveSession, error) {
		return s.Login(t.Context(), made.ID, account.NewLogin{Authentication: account.Authentication{Key: "ann"},
			TokenHash: []byte(secret), StartedAt: began, ForceReauth: true,
			URL: "https://app.example.com", MaxDuration: time.Hour})
	}
	before, err := s.Time(t.Context())
	storetest.Must(t, err)
	if ahead := time.Since(before); ahead < 9*time.Minute {
		t.Fatalf("Time is %s behind the server's clock, want 10m", ahead)
	}
	session, err := login("s1", before)
	storetest.Must(t, err)
	_, err = s.Revoke(t.Context(), account.Caller{AccountID: made.ID},
		account.RevokeSelector{SessionID: session.ID}, account.RevokedByAdmin)
	storetest.Must(t, err)
	_, err = login("s2", before)
	storetest.MustCode(t, err, account.CodeLoginAgain)
	after, err := s.Time(t.Context())
	storetest.Must(t, err)
	_, err = login("s3", after)
	storetest.Must(t, err)
}
