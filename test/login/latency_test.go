// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"slices"
	"testing"
	"time"
)

// BenchmarkLogin measures a login through Dex from the first request to the upstream's response.
// Dex spends most of it on the password; "known" is a login without one, in a browser with a
// session at Dex.
func BenchmarkLogin(b *testing.B) {
	s := oidcSite(b, "bench")
	s.warm()
	var whole, known []time.Duration
	for b.Loop() {
		c := newBrowser(b)
		began := time.Now()
		c.signIn(c.visit(s.url+"/"), alice).echo(b)
		whole = append(whole, time.Since(began))
		began = time.Now()
		c.visit(s.loginURL("oidc", "login") + "?return_to=/").echo(b)
		known = append(known, time.Since(began))
	}
	for name, all := range map[string][]time.Duration{"whole": whole, "known": known} {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, name+"-p50-ms")
		b.ReportMetric(float64(all[len(all)-1].Microseconds())/1000, name+"-max-ms")
	}
}

// warm makes the service fetch the provider's keys.
func (s *site) warm() {
	c := newBrowser(s.TB)
	c.signIn(c.visit(s.url+"/"), bob).echo(s.TB)
}
