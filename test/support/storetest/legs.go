// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// legs tests what several servers know of a session, as far as one server has it, too.
var legs = map[string]func(t *testing.T, open Open){
	"legs/holdings":   legHoldings,
	"legs/one server": legOfOneServer,
}

func legHoldings(t *testing.T, open Open) {
	f := NewFixture(t, open)
	session, other := f.Session(), f.Session()
	f.Bind(other, "http://other.demo")
	f.tunnel(other, map[string]string{"app": "other"})
	plain := f.Bind(session, "http://plain.demo").Endpoint
	f.Clock.Step(time.Second) // ids of one millisecond have no order
	r := f.Request(session, "http://policy.demo")
	r.TrafficPolicy, r.PolicyFacts = secretPolicy, FactsOf(secretPolicy)
	bound, err := f.Store.Bind(f.ctx(), r)
	Must(t, err)
	ended := f.Bind(session, "http://ended.demo").Endpoint.ID
	Must(t, f.Store.Unbind(f.ctx(), f.AccountID, ended, session))
	tunnel := f.tunnel(session, map[string]string{"app": "api"})

	held, err := f.Store.SessionHoldings(f.ctx(), f.AccountID, session)
	Must(t, err)
	withPolicy := bound.Endpoint
	withPolicy.TrafficPolicy = secretPolicy
	Equal(t, "endpoints", endpointTexts(held.Endpoints), endpointTexts([]account.Endpoint{plain, withPolicy}))
	Equal(t, "tunnels", fmt.Sprintf("%+v", held.Tunnels), fmt.Sprintf("%+v", []account.LabelledTunnel{*tunnel}))

	versions, err := f.Store.HoldingsVersions(f.ctx(), []string{session, other, "ts-unknown"})
	Must(t, err)
	Equal(t, "versions", len(versions), 2)
	Equal(t, "version", versions[session], account.HoldingsVersion{Endpoints: 2,
		EndpointSeq: withPolicy.ResourceVersion.Seq, Tunnels: 1, TunnelID: tunnel.ID})
	Equal(t, "endpoints of the other", versions[other].Endpoints, 1)

	stranger, _ := f.NewAccount("second")
	_, err = f.Store.SessionHoldings(f.ctx(), stranger, session)
	MustCode(t, err, account.CodeNotFound)
	f.EndSession(session)
	_, err = f.Store.SessionHoldings(f.ctx(), f.AccountID, session)
	MustCode(t, err, account.CodeNotFound)
	versions, err = f.Store.HoldingsVersions(f.ctx(), []string{session})
	Must(t, err)
	Equal(t, "versions of what is over", len(versions), 0)
}

// endpointTexts returns the endpoints as text, with what they point to.
func endpointTexts(all []account.Endpoint) (texts string) {
	for _, e := range all {
		texts += fmt.Sprintln(e.ID, e.URL, e.Status, e.TrafficPolicy, e.TunnelSession.ID, e.ResourceVersion, e.HostMode,
			e.AccountID)
	}
	return texts
}

func legOfOneServer(t *testing.T, open Open) {
	f := NewFixture(t, open)
	hash := account.HashSecret("join")
	id := account.NewID(account.PrefixTunnelSession, f.Clock.Now())
	Must(t, f.Store.StartSession(f.ctx(), account.TunnelSession{ID: id, AccountID: f.AccountID, IP: "203.0.113.9",
		Credential: account.Ref{ID: f.TokenID}, JoinHash: hash}))
	got, err := f.Store.TunnelSession(f.ctx(), f.AccountID, id)
	Must(t, err)
	Equal(t, "join hash", string(got.JoinHash), string(hash))
	_, err = f.Store.JoinSession(f.ctx(), id, hash) // there is no other server
	MustCode(t, err, account.CodeNotFound)

	e := f.Bind(id, "http://a.demo").Endpoint
	stranger, _ := f.NewAccount("second")
	Must(t, f.Store.LeaveSession(f.ctx(), stranger, id, account.SessionEnd{}))
	Equal(t, "after another account left it", f.Endpoint(e.ID).Status, account.StatusOnline)
	f.Clock.Step(time.Second)
	Must(t, f.Store.LeaveSession(f.ctx(), f.AccountID, id, account.SessionEnd{}))
	Equal(t, "after the end", f.Endpoint(e.ID).Status, account.StatusOffline)
	_, err = f.Store.TunnelSession(f.ctx(), f.AccountID, id)
	MustCode(t, err, account.CodeNotFound)
}
