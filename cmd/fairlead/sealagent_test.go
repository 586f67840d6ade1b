// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// TestSealedAgent_ServesHTTP runs the command with a certificate of the owner's and a policy, and calls it
// as a forwarder does.
func TestSealedAgent_ServesHTTP(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	forwarder := r.StartForwarder()
	session, err := forwarder.Wait(servicetest.Context(t))
	must.Succeed(t, err)
	o := owner{t, t.TempDir()}
	accountID := session.Welcome().AccountID
	o.run(0, "init", "--account", accountID)
	folder := filepath.Join(o.home, "api")
	o.run(0, "request", "--out", folder)
	o.run(0, "sign", "--url", "http://api.demo", filepath.Join(folder, "tls.csr"))
	web := servicetest.ServeHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "hello "+r.Header.Get("X-Team"))
	})
	command := runWith(t, r, r.Authtoken, "http", web, "--url", "http://api.demo", "--sealed", folder,
		"--traffic-policy-file", o.write("policy.yaml", []byte("on_http_request:\n- actions:\n"+
			"  - {type: add-headers, config: {headers: {x-team: blue}}}"))).printed("Sealed      by the key sha256/")

	text, err := os.ReadFile(o.file("root.crt"))
	must.Succeed(t, err)
	block, _ := pem.Decode(text)
	root, err := x509.ParseCertificate(block.Bytes)
	must.Succeed(t, err)
	trust, err := sealed.NewTrust(sealed.TrustOptions{Mode: sealed.Require, Account: accountID,
		Authorities: []*x509.Certificate{root}})
	must.Succeed(t, err)
	u := account.EndpointURL{Scheme: "http", Host: "api.demo", Port: 80}
	var list struct{ Endpoints []account.Endpoint }
	r.CallAPI("GET", "/endpoints", nil, &list)
	st := forwarder.Open(tunnel.OpenHeader{EndpointID: list.Endpoints[0].ID, Scheme: u.Scheme, Host: u.Host,
		Port: u.Port, Sealed: true})
	_, err = sealed.ReadHint(st)
	must.Succeed(t, err)
	c, err := trust.Connect(servicetest.Context(t), st, sealed.Header{URL: u, ClientAddr: servicetest.PodAddr})
	must.Succeed(t, err)
	answers := bufio.NewReader(c)
	for n := range 2 {
		_, err = fmt.Fprintf(c, "GET /%d HTTP/1.1\r\nHost: api.demo\r\n\r\n", n)
		must.Succeed(t, err)
		res, err := http.ReadResponse(answers, nil)
		must.Succeed(t, err)
		got, err := io.ReadAll(res.Body)
		if must.Succeed(t, errors.Join(err, res.Body.Close())); string(got) != "hello blue" {
			t.Errorf("%s %q", res.Status, got)
		}
	}
	command.printed("GET").printed("/1")
	_ = c.Close()
}

// TestSealedAgent_RefusesWhatAgentsCannotDo checks that flags and the config file name what the agent
// of a sealed endpoint cannot do, and the remedy, before it connects.
func TestSealedAgent_RefusesWhatAgentsCannotDo(t *testing.T) {
	t.Parallel()
	o := newOwner(t)
	folder := filepath.Join(o.home, "api")
	o.run(0, "request", "--out", folder)
	o.run(0, "sign", "--url", "http://api.demo", "--url", "tcp://db.demo:5432", filepath.Join(folder, "tls.csr"))
	policy := func(text string) string { return o.write("policy.yaml", []byte(text)) }
	for name, c := range map[string]struct {
		policy, url, field, value string // field and value are further ones.
		want                      string
	}{
		"an action of the service": {policy: "on_http_request: [{actions: [{type: forward-internal, " +
			"config: {url: 'http://x.internal'}}]}]", url: "http://api.demo",
			want: "forward-internal needs the service"},
		"a location": {policy: "on_tcp_connect: [{expressions: [conn.geo.city == 'x'], actions: [{type: deny}]}]",
			url: "tcp://db.demo:5432", want: "has no data about locations"},
		"callers unknown": {policy: "on_tcp_connect: [{expressions: [conn.cluster == 'x'], actions: [{type: deny}]}]",
			url: "http://api.demo", want: "with --seal-callers"},
		"a mistake": {policy: "on_http_request: [{actions: [{type: denny}]}]", url: "http://api.demo",
			want: `there is no action "denny"`},
		"a pool's policy": {policy: "{}", url: "http://api.demo", field: "replace_pool_policy", value: "true",
			want: "applies the policy of its own file"},
		"another name": {policy: "{}", url: "http://other.demo", want: "does not name http://other.demo"},
	} {
		file := policy(c.policy)
		scheme, _, _ := strings.Cut(c.url, ":")
		args := []string{scheme, "8080", "--url", c.url, "--server", "https://s", "--sealed", folder,
			"--traffic-policy-file", file}
		config := "endpoints:\n- {name: a, url: '" + c.url + "', upstream: '8080', sealed: '" + folder +
			"', traffic_policy_file: '" + file + "'"
		if c.field != "" {
			args = append(args, "--pooling-enabled", "--"+strings.ReplaceAll(c.field, "_", "-")+"="+c.value)
			config += ", pooling_enabled: true, " + c.field + ": " + c.value
		}
		if r := fairlead(t, nil, "", args...); r.code != exitUsage || !strings.Contains(r.err, c.want) {
			t.Errorf("%s: flags: %+v, want %q", name, r, c.want)
		}
		r := fairlead(t, nil, "", "config", "check", "--config", o.write("config.yaml", []byte(config+"}\n")))
		if r.code == 0 || strings.Count(r.err, c.want) != 1 {
			t.Errorf("%s: config: %+v, want %q once", name, r, c.want)
		}
	}
}
