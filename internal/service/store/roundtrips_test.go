// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"fmt"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// TestWrites_RoundTrips bounds the round trips to PostgreSQL of single writes: all servers wait for
// those between the lock and the commit. Three are outside: the beginning, the way to the lock, and
// the notification of the other servers after the commit.
func TestWrites_RoundTrips(t *testing.T) {
	t.Parallel()
	server := postgres.Server(t)
	databaseURL, trips := server.CountTrips(t, server.URL(t))
	f, _ := postgresFixture(t, databaseURL)
	ctx, by := t.Context(), account.Caller{AccountID: f.AccountID, PrincipalID: "ak-admin"}
	const warm = 3 // rounds: statements are prepared when they are first used, and again
	for round := range warm + 1 {
		step := func(what string, most int64, err error) {
			t.Helper()
			storetest.Must(t, err)
			if n := trips.Swap(0); round == warm && n > most {
				t.Errorf("%s: %d round trips, at most %d", what, n, most)
			}
		}
		trips.Store(0)
		session := f.Session()
		step("start of a session", 5, nil)
		bound, err := f.Store.Bind(ctx, f.Request(session, fmt.Sprintf("http://a%d.demo", round)))
		step("bind", 9, err)
		step("unbind", 6, f.Store.Unbind(ctx, f.AccountID, bound.Endpoint.ID, session))
		step("end of a session", 8, f.Store.EndSession(ctx, f.AccountID, session, account.SessionEnd{}))
		cloud := f.MakeCloud(f.Cloud(fmt.Sprintf("http://c%d.demo", round)))
		step("endpoint of type cloud", 12, nil)
		policy := "p"
		_, err = f.Store.PatchEndpoint(ctx, by, cloud.ID, account.EndpointPatch{TrafficPolicy: &policy},
			storetest.FactsOf(policy))
		step("patch of a policy", 7, err)
		step("deletion of an endpoint", 6, f.Store.DeleteEndpoint(ctx, by, cloud.ID))
		token, err := f.Store.CreateAuthtoken(ctx, by, account.AuthtokenPatch{})
		step("authtoken", 7, err)
		step("deletion of an authtoken", 6, f.Store.DeleteAuthtoken(ctx, by, token.ID))
		who := fmt.Sprintf("person%d", round)
		login, err := f.Store.Login(ctx, f.AccountID, f.NewLogin(who, who))
		step("login", 12, err)
		_, err = f.Store.Revoke(ctx, by, account.RevokeSelector{UserID: login.Identity.ID}, account.RevokedByAdmin)
		step("revocation", 7, err)
	}
}
