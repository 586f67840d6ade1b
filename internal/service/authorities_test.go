// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/service/pki"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// TestAuthorities_AllReplicasFollow replaces the authority of two replicas. One client learns, the
// other one is of a version that does not.
func TestAuthorities_AllReplicasFollow(t *testing.T) {
	t.Parallel()
	g := newReplicaGroup(t)
	all := []*servicetest.Server{g.start(), g.start()}
	awaitPeers(1, all...)
	key, err := seal.Read(g.key)
	must.Succeed(t, err)
	st, err := store.Open(t.Context(), store.Options{DatabaseURL: g.database, Key: key})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = st.Close() })
	rotation := pki.NewRotation("", st)
	before, err := rotation.Read(t.Context())
	must.Succeed(t, err)

	config, learner, err := trust.Options{CAPEM: pki.EncodeCertificate(before.Current), Host: "127.0.0.1"}.Open()
	must.Succeed(t, err)
	run := func(change func(*tunnel.ClientConfig)) *tunnel.Session {
		c := tunnel.ClientConfig{Hello: func() tunnel.Hello {
			return tunnel.Hello{Role: tunnel.RoleAgent, Token: all[0].Authtoken}
		}, MaxLegs: 1}
		change(&c)
		client, _, _ := all[0].RunTunnelClient(c)
		session, err := client.Wait(servicetest.Context(t))
		must.Succeed(t, err)
		return session
	}
	run(func(c *tunnel.ClientConfig) { c.Authorities = learner })
	older := run(func(*tunnel.ClientConfig) {})

	must.Succeed(t, rotation.AddNext(t.Context(), time.Now()))
	next, err := rotation.Read(t.Context())
	must.Succeed(t, err)
	servicetest.Eventually(t, "a report of both replicas that names the older client", func() bool {
		untold := untoldOf(t, st, next.Next)
		return untold == "0[]1["+older.ID()+"]" || untold == "1["+older.ID()+"]0[]"
	})
	list := apiCaller(all[0], trust.Options{CAPEM: pki.EncodeCertificate(before.Current)})
	list()
	must.Succeed(t, rotation.Promote(t.Context()))
	for i, r := range all {
		servicetest.Eventually(t, fmt.Sprintf("a certificate of the next authority at replica %d", i), func() bool {
			return presents(r, next.Next)
		})
	}
	list()
	knowsBefore := apiLearner(all[0], next.Next)
	if !knowsBefore() {
		t.Error("a client of the API learnt nothing")
	}
	must.Succeed(t, rotation.Retire(t.Context()))
	servicetest.Eventually(t, "that client to forget the one before", func() bool { return !knowsBefore() })
	for _, r := range all { // the client that has learnt trusts both replicas
		_, err := callTrusting(r, config)
		must.Succeed(t, err)
	}
}

// untoldOf returns how many sessions of each replica do not know the next authority, and which; "" until
// all have announced it.
func untoldOf(t *testing.T, st *store.Store, next *x509.Certificate) (untold string) {
	t.Helper()
	reports, err := st.AuthorityReports(t.Context())
	must.Succeed(t, err)
	for _, r := range reports {
		if r.Next != trust.Fingerprint(next) {
			return ""
		}
		untold += fmt.Sprintf("%d%v", r.Untold, r.Sessions)
	}
	return untold
}

// apiCaller returns a function that calls the API over a new connection, and learns from its answer.
func apiCaller(r *servicetest.Server, given trust.Options) func() {
	given.Host = "127.0.0.1"
	config, learner, err := given.Open()
	must.Succeed(r.T, err)
	api, err := apiclient.New(apiclient.Options{BaseURL: "https://" + r.Addrs.Service.String(), TLS: config,
		Authorities: learner, APIKey: func() (string, error) { return r.APIKey, nil }})
	must.Succeed(r.T, err)
	return func() {
		_, err := api.FirstEndpoints(r.T.Context(), 1)
		must.Succeed(r.T, err)
		api.CloseIdleConnections()
	}
}

// apiLearner returns a function that calls the API for a client that was given the authority, and
// reports whether it has learnt another one.
func apiLearner(r *servicetest.Server, given *x509.Certificate) func() bool {
	kept := r.T.TempDir()
	list := apiCaller(r, trust.Options{CAPEM: pki.EncodeCertificate(given), Keep: kept})
	return func() bool {
		list()
		files, err := os.ReadDir(kept)
		must.Succeed(r.T, err)
		return len(files) > 0
	}
}

// callTrusting calls the API over a connection of its own, and returns its TLS state.
func callTrusting(r *servicetest.Server, config *tls.Config) (*tls.ConnectionState, error) {
	tr := &http.Transport{TLSClientConfig: config.Clone(), DisableKeepAlives: true}
	answer, err := tr.RoundTrip(r.NewAPIRequest("GET", "/endpoints", nil))
	if err != nil {
		return nil, err
	}
	return answer.TLS, answer.Body.Close()
}

// presents reports whether the service presents a certificate of the authority.
func presents(r *servicetest.Server, ca *x509.Certificate) bool {
	config, err := trust.Options{CAPEM: pki.EncodeCertificate(ca)}.ClientConfig()
	must.Succeed(r.T, err)
	_, err = callTrusting(r, config)
	return err == nil
}
