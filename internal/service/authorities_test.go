// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
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
		reports, err := st.AuthorityReports(t.Context())
		must.Succeed(t, err)
		untold := ""
		for _, r := range reports {
			if r.Next != trust.Fingerprint(next.Next) {
				return false
			}
			untold += fmt.Sprintf("%d%v", r.Untold, r.Sessions)
		}
		return untold == "0[]1["+older.ID()+"]" || untold == "1["+older.ID()+"]0[]"
	})
	apiConfig, apiLearner, err := trust.Options{CAPEM: pki.EncodeCertificate(before.Current), Host: "127.0.0.1"}.Open()
	must.Succeed(t, err)
	api, err := apiclient.New(apiclient.Options{BaseURL: "https://" + all[0].Addrs.Service.String(), TLS: apiConfig,
		Authorities: apiLearner, APIKey: func() (string, error) { return all[0].APIKey, nil }})
	must.Succeed(t, err)
	list := func() {
		_, err := api.FirstEndpoints(t.Context(), 1)
		must.Succeed(t, err)
		api.CloseIdleConnections()
	}
	list()
	must.Succeed(t, rotation.Promote(t.Context()))
	for i, r := range all {
		servicetest.Eventually(t, fmt.Sprintf("a certificate of the next authority at replica %d", i), func() bool {
			return presents(r, next.Next)
		})
	}
	list()
	must.Succeed(t, rotation.Retire(t.Context()))
	for _, r := range all { // the client that has learnt trusts both replicas
		_, err := callTrusting(r, config)
		must.Succeed(t, err)
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
