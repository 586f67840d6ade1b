// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

func TestAPI_ServiceExports(t *testing.T) {
	t.Parallel()
	a := newAccountAPI(t)
	record := a.MakeCloud(a.Export("hello", "a", "c-1"))
	_, err := a.Store.Bind(t.Context(), a.ExportedPort(a.Session(), *record, 42))
	storetest.Must(t, err)
	table := a.api(0, "endpoints", "list", "--binding", "clusterset", "--type", "cloud", "-o", "wide").out
	if !regexp.MustCompile(`^URL .*\nservice://hello\.demo\.a +online +clusterset +` + record.ID +
		` +cloud +- +- +- +ServiceExport demo/hello +` + tableTime + `\n$`).MatchString(table) {
		t.Errorf("table:\n%s", table)
	}
	table = a.api(0, "endpoints", "list", "--binding", "clusterset", "--owner-cluster", "c-1").out
	if !regexp.MustCompile(`tcp://hello\.demo\.a:42 +online +clusterset `).MatchString(table) {
		t.Errorf("table:\n%s", table)
	}
	text := a.api(0, "endpoints", "get", record.ID).out
	if !regexp.MustCompile(`(?m)^hostport +hello\.demo\.a$`).MatchString(text) ||
		!regexp.MustCompile(`(?m)^service_export +ClusterSetIP, tcp 42/TCP, udp 42/UDP, ready$`).MatchString(text) {
		t.Errorf("get:\n%s", text)
	}
}

// TestAPI_DeletesEndpointsOfCluster checks that the command asks, deletes what the filter selects and
// nothing else, and goes on after a failure.
func TestAPI_DeletesEndpointsOfCluster(t *testing.T) {
	t.Parallel()
	a := newAccountAPI(t)
	record := a.MakeCloud(a.Export("hello", "a", "c-1"))
	other := a.MakeCloud(a.Export("hello", "b", "c-2"))
	session := a.Session()
	_, err := a.Store.Bind(t.Context(), a.ExportedPort(session, *record, 42))
	storetest.Must(t, err)
	command := []string{"endpoints", "delete", "--binding", "clusterset", "--owner-cluster", "c-1"}
	for _, wrong := range [][]string{command, {"endpoints", "delete"}, {"endpoints", "delete", "--type", "cloud"},
		append(command, record.ID), {"endpoints", "delete", record.ID, "--type", "cloud"},
		{"endpoints", "delete", record.ID, other.ID}} {
		a.api(exitUsage, wrong...)
	}
	remaining := func() int { return strings.Count(a.api(0, "endpoints", "list", "-o", "name").out, "\n") }
	for _, c := range []struct {
		answer, want string
		left         int
	}{
		{"no\n", "nothing was deleted", 3},
		{"yes\n", "1 of 2 endpoints deleted", 2}, // the port is held by a session
	} {
		var out, errOut bytes.Buffer
		code := run(t.Context(), append([]string{"api"}, command...), console{in: strings.NewReader(c.answer),
			out: &out, err: &errOut, asks: true, env: func(k string) string { return a.env[k] }})
		if code != 1 || !strings.Contains(errOut.String(), "Delete all of these (2)?") ||
			!strings.Contains(errOut.String(), c.want) || strings.Count(out.String(), "hello.demo.a") != 2 ||
			remaining() != c.left {
			t.Errorf("%q: %d, %d endpoints remain\n%s%s", c.answer, code, remaining(), out.String(), errOut.String())
		}
	}
	text := a.api(1, append(command, "--yes")...).err
	if !strings.Contains(text, "tcp://hello.demo.a:42 (ep-") || !strings.Contains(text, "is not deleted: ") {
		t.Errorf("a port that is online: %s", text)
	}
	storetest.Must(t, a.Store.EndSession(t.Context(), a.AccountID, session, account.SessionEnd{}))
	for _, want := range []string{"1 of 1 endpoints deleted", "0 of 0 endpoints deleted"} {
		if text := a.api(0, append(command, "--yes")...).err; !strings.Contains(text, want) {
			t.Errorf("want %s: %s", want, text)
		}
	}
	if n := remaining(); n != 1 {
		t.Errorf("%d endpoints remain, want that of the other cluster", n)
	}
}
