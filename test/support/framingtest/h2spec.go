// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package framingtest

import (
	"maps"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	"github.com/summerwind/h2spec/hpack"
	"github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/spec"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// h2specTests is how many cases h2spec 2.2.1 has outside its strict mode.
const h2specTests = 145

// knownFailures are the cases of h2spec that Go's HTTP/2 server does not pass, with what it does
// instead.
var knownFailures = map[string]string{
	"http2/6.5.3/1":   "a SETTINGS frame that names a setting twice ends the connection with PROTOCOL_ERROR",
	"http2/8.1.2.2/1": "headers of a connection are answered with 400 instead of RST_STREAM",
	"http2/8.1.2.2/2": "a TE other than trailers is answered with 400 instead of RST_STREAM",
}

// H2Spec runs the conformance suite h2spec against the server at addr, which serves "localhost",
// and fails the test for every case with an unexpected outcome. A server without TLS speaks HTTP/1
// too. H2Spec must not run twice at a time in one process.
func H2Spec(t *testing.T, addr net.Addr, tls bool) {
	t.Helper()
	_, port, err := net.SplitHostPort(addr.String())
	must.Succeed(t, err)
	n, err := strconv.Atoi(port)
	must.Succeed(t, err)
	c := &config.Config{Host: "localhost", Port: n, Path: "/", Timeout: 2 * time.Second, MaxHeaderLen: 4000, TLS: tls,
		Insecure: true}
	known := maps.Clone(knownFailures)
	if !tls {
		known["http2/3.5/2"] = "what is not the preface of HTTP/2 is a request of HTTP/1, and answered with 400"
	}
	failed, total := map[string]string{}, 0
	for _, group := range []*spec.TestGroup{generic.Spec(), http2.Spec(), hpack.Spec()} {
		group.Test(c)
		total += group.FailedCount + group.PassedCount + group.SkippedCount
		collect(group, failed)
	}
	for _, id := range slices.Sorted(maps.Keys(failed)) {
		if known[id] == "" {
			t.Errorf("h2spec %s: %s", id, failed[id])
		}
	}
	for id, why := range known {
		if failed[id] == "" {
			t.Errorf("h2spec %s passes now; it is listed as failing: %s", id, why)
		}
	}
	if total != h2specTests {
		t.Errorf("h2spec ran %d cases, want %d", total, h2specTests)
	}
	t.Logf("h2spec: %d of %d passed", total-len(failed), total)
}

// collect adds the failed and the skipped cases of a group, by id ("http2/8.1.2.2/1").
func collect(g *spec.TestGroup, failed map[string]string) {
	for i, test := range append(slices.Clone(g.Tests), g.StrictTests...) {
		if r := test.Result; r != nil && (r.Failed || r.Skipped) {
			failed[g.ID()+"/"+strconv.Itoa(i+1)] = test.Desc
		}
	}
	for _, sub := range g.Groups {
		collect(sub, failed)
	}
}
