// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/oidctest"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// postLogouts posts logout tokens from one address, 16 at a time, and returns how often each status
// was the answer.
func (c *sessionLoad) postLogouts(tokens []string) map[int]int {
	c.T.Helper()
	var workers sync.WaitGroup
	var mu sync.Mutex
	statuses, queue, client := map[int]int{}, make(chan *http.Request), c.http2()
	for range 16 {
		workers.Go(func() {
			for r := range queue {
				res, err := client.Do(r)
				if err != nil {
					c.T.Error(err)
					continue
				}
				_ = res.Body.Close()
				mu.Lock()
				statuses[res.StatusCode]++
				mu.Unlock()
			}
		})
	}
	for _, token := range tokens {
		queue <- newLogoutRequest(c.T, loadURL, token)
	}
	close(queue)
	workers.Wait()
	return statuses
}

// addSessionOfClient makes a session of a client of the provider.
func (c *sessionLoad) addSessionOfClient(client, subject string) loadSession {
	c.T.Helper()
	return c.addSession(subject, loadURL, func(l *account.NewLogin) {
		l.Issuer, l.Client, l.Subject = c.idp.URL, client, subject
	})
}

func TestBackChannelLogout_EndsEverySessionOfAProvider(t *testing.T) {
	t.Parallel()
	c := startSessionLoad(t)
	const people = 300
	tokens := make([]string, people)
	for i := range tokens {
		subject := fmt.Sprint("person-", i)
		c.addSessionOfClient(oidctest.ClientID, subject)
		tokens[i] = c.idp.Sign(c.idp.LogoutClaims(subject))
	}
	c.addSessionOfClient("another", "person-0")
	start := time.Now()
	statuses := c.postLogouts(tokens)
	took := time.Since(start)
	page := account.Page{Limit: account.MaxPageLimit}
	left, _, err := c.tenant.Store.AppSessions(servicetest.Context(t), c.Account, account.AppSessionFilter{}, page)
	// that of another client, and the fixture's own
	if err != nil || statuses[http.StatusOK] != people || len(left) != 2 {
		t.Errorf("%d logout tokens: statuses %v, %d sessions are left, %v", people, statuses, len(left), err)
	}
	t.Logf("%d logout tokens took %s: %v", people, took, statuses)
	unknown := make([]string, 60)
	for i := range unknown {
		unknown[i] = c.idp.SignAs(fmt.Sprint("key-", i), c.idp.LogoutClaims(fmt.Sprint("unknown-", i)))
	}
	fetched, began := c.idp.Requests("/keys"), time.Now()
	statuses = c.postLogouts(unknown)
	n, most := c.idp.Requests("/keys")-fetched, 1+int(time.Since(began)/(5*time.Second))
	if n > most || statuses[http.StatusBadRequest] != len(unknown) {
		t.Errorf("%d tokens with unknown keys: %d fetches, statuses %v", len(unknown), n, statuses)
	}
	t.Logf("%d logout tokens with unknown keys: %d fetches", len(unknown), n)
}
