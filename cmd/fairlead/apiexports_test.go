// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"testing"

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
