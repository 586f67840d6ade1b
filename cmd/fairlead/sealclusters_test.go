// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/sealed/authority"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/sealtest"
)

// TestSealedAgent_ChecksItsFiles checks what an agent says about files of --sealed and --seal-callers.
func TestSealedAgent_ChecksItsFiles(t *testing.T) {
	t.Parallel()
	o := newOwner(t)
	folder := func(name string) string { return filepath.Join(o.home, name) }
	signed := func(name string, args ...string) string {
		o.run(0, "request", "--out", folder(name))
		o.run(0, append([]string{"sign", filepath.Join(folder(name), "tls.csr")}, args...)...)
		return folder(name)
	}
	agent, caller := signed("agent", "--url", "tcp://db.demo:5432"), signed("caller", "--caller", "cluster-1")
	for name, c := range map[string]struct{ url, sealed, callers, want string }{
		"another URL":         {"tcp://a.demo:1", agent, o.file("authorities.pem"), "does not name tcp://a.demo:1"},
		"a caller's":          {"tcp://db.demo:5432", caller, o.file("authorities.pem"), "not name tcp://db.demo:5432"},
		"no file of callers":  {"tcp://db.demo:5432", agent, folder("none"), "no such file"},
		"a key as authority":  {"tcp://db.demo:5432", agent, o.file("root.key"), `PEM block "PRIVATE KEY"`},
		"a leaf as authority": {"tcp://db.demo:5432", agent, filepath.Join(caller, "tls.crt"), "not one of an auth"},
	} {
		r := fairlead(t, nil, "", "tcp", "1", "--url", c.url, "--sealed", c.sealed, "--seal-callers", c.callers)
		if r.code != exitUsage || !strings.Contains(r.err, c.want) {
			t.Errorf("%s: %+v, want %q", name, r, c.want)
		}
	}
	for want, args := range map[string][]string{
		"is for --seal-callers": {"--seal-clusters", o.file("root.crt")},
		"it is not what fairlead seal clusters makes": {"--seal-callers", o.file("authorities.pem"), "--seal-clusters",
			o.file("root.crt")},
	} {
		r := fairlead(t, nil, "", append(args, "tcp", "1", "--url", "tcp://db.demo:5432", "--sealed", agent)...)
		if r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%q: %+v, want %q", args, r, want)
		}
	}
}

// TestSealClusters_ForAgents signs what two clusters publish, for agents that verify tokens by it.
func TestSealClusters_ForAgents(t *testing.T) {
	t.Parallel()
	o := newOwner(t)
	signer := sealtest.NewOwner(t, sealAccount)
	eu, us := signer.NewCluster("eu"), signer.NewCluster("us")
	eu.Issuer, us.Subject = "https://oidc.example.com/eu", "system:serviceaccount:fairlead:fairlead-operator-forwarder"
	publish := func(c *sealtest.Cluster, discovery string) string {
		keys, err := json.Marshal(c.KeySet())
		must.Succeed(t, err)
		return o.write(c.Name+".json", append([]byte(discovery), keys...))
	}
	euFile := publish(eu, `{"issuer": "`+eu.Issuer+`", "jwks_uri": "https://x/openid/v1/jwks"}`)
	usFile := publish(us, "")
	r := o.run(0, "clusters", "eu:fairlead/forwarder="+euFile, "us="+usFile)
	_, until, _ := strings.Cut(r.out, `clusters.jws" is good until `)
	until, _, _ = strings.Cut(until, ",")
	if end, err := time.Parse(time.RFC3339, until); err != nil || time.Until(end).Round(time.Hour) != 30*24*time.Hour {
		t.Errorf("%s: until %v, %v", r.out, end, err)
	}
	for _, want := range []string{
		"  eu, by a token of system:serviceaccount:fairlead:forwarder from https://oidc.example.com/eu\n",
		"  us, by a token of " + us.Subject + " from ",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("%s, want %s", r.out, want)
		}
	}
	callers := &authority.Callers{File: o.file("authorities.pem"), Clusters: o.file("clusters.jws"),
		Account: sealAccount}
	must.Succeed(t, callers.Problem())
	for _, c := range []*sealtest.Cluster{eu, us} {
		name, err := callers.VerifyToken(c.Token(nil))
		must.Succeed(t, err)
		if name != c.Name {
			t.Errorf("%q for a token of %s", name, c.Name)
		}
	}
	o.run(0, "clusters", "--for", "24h", "us="+usFile)
	renewed := &authority.Callers{File: callers.File, Clusters: callers.Clusters, Account: sealAccount}
	if name, err := renewed.VerifyToken(eu.Token(nil)); err == nil {
		t.Errorf("%s was left out, and is known", name)
	}
	o.run(0, "status") // of the roots
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "name the clusters"},
		{[]string{"eu"}, "must be NAME=FILE"},
		{[]string{"eu:forwarder=" + euFile}, "must be NAME=FILE"},
		{[]string{"e.u=" + euFile}, "NAME a DNS label"},
		{[]string{"eu=" + o.file("root.key")}, "is PEM"},
		{[]string{"eu=" + o.file("none")}, "no such file"},
		{[]string{"--for", "31d", "eu=" + euFile}, "must be from 24h to 30d"},
		{[]string{"--dir", o.home, "eu=" + euFile}, "make roots with fairlead seal init"},
	} {
		if r := o.run(exitUsage, append([]string{"clusters"}, c.args...)...); !strings.Contains(r.err, c.want) {
			t.Errorf("%q: %s, want %q", c.args, r.err, c.want)
		}
	}
}
