// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

func TestHeadersOfAPerson(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"Ann": "Ann", "Ann Ä": "Ann %C3%84", "a%b": "a%25b",
		"a\r\nX: y": "a%0D%0AX: y", " a ": "%20a%20", "\x00": "%00", "": ""} {
		if got := encode(text, ""); got != want || !httpguts.ValidHeaderFieldValue(got) {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	all := (&trafficpolicy.LoginConfig{}).ForwardsGroup
	if got, missing := joinGroups([]string{"a,b", "", "c d"}, all); got != "a%2Cb,c d" || missing != 0 {
		t.Errorf("groups %q, %d are missing", got, missing)
	}
	long := strings.Repeat("g", maxHeader/2)
	if got, missing := joinGroups([]string{long, long, "last"}, all); got != long+",last" || missing != 1 {
		t.Errorf("%d bytes of groups, %d are missing", len(got), missing)
	}
	h := http.Header{"Connection": {"Upgrade, fairlead-auth-user-id", "Fairlead_Auth_Email,keep-alive"}}
	if dropFromConnection(h); h["Connection"][0] != "Upgrade" || h["Connection"][1] != "keep-alive" {
		t.Errorf("Connection %q", h["Connection"])
	}
}

// The upstream is told how many groups it is not told; rules have all of them.
func TestGroupHeaders_SayWhatIsMissing(t *testing.T) {
	t.Parallel()
	groups := make([]string, 301)
	for i := range groups {
		groups[i] = fmt.Sprintf("department-%06d-x", i)
	}
	for name, c := range map[string]struct {
		upstream       []string
		named, missing int
	}{
		"all":            {nil, 204, 97},
		"by name":        {[]string{"department-000300-x", "department-000299-x", "other"}, 2, 0},
		"by beginning":   {[]string{"department-0000*", "department-000300-x"}, 101, 0},
		"by \"*\"":       {[]string{"*"}, 204, 97},
		"none":           {[]string{}, 0, 0},
		"too many still": {[]string{"department-0001*", "department-0002*", "department-00001*"}, 204, 6},
	} {
		w := newWorld(t)
		w.config.UpstreamGroups, w.idp.confirmed.Identity.Groups = c.upstream, groups
		b := w.browser()
		b.login("/")
		in := b.get("/", headerMissing, "0")
		if in.passed == nil || len(in.found.Identity.Groups) != len(groups) {
			t.Fatalf("%s: %d, rules have %d groups", name, in.Code, len(in.found.Identity.Groups))
		}
		named := 0
		if value := in.passed.Header.Get(headerGroups); value != "" {
			named = strings.Count(value, ",") + 1
		}
		want := http.Header{}
		if c.missing > 0 {
			want.Set(headerMissing, strconv.Itoa(c.missing))
		}
		got := in.passed.Header.Values(headerMissing)
		if named != c.named || !slices.Equal(got, want.Values(headerMissing)) {
			t.Errorf("%s: %d groups are named, %q are missing; want %d, %d", name, named, got, c.named, c.missing)
		}
	}
}

func TestLimiter(t *testing.T) {
	t.Parallel()
	l, at := newLimiter(1, 2), time.Unix(1, 0)
	allowed := func(addr string) bool { return l.allow(netip.MustParseAddr(addr), at) }
	if !allowed("192.0.2.1") || !allowed("::ffff:192.0.2.1") || allowed("192.0.2.1") || !allowed("192.0.2.2") {
		t.Error("of IPv4, each address counts")
	}
	if !allowed("2001:db8::1") || !allowed("2001:db8:0:0:ffff::1%eth0") || allowed("2001:db8::2") ||
		!allowed("2001:db8:0:1::1") {
		t.Error("of IPv6, each /64 counts")
	}
	for i := range 3 {
		if l.allow(netip.Addr{}, at) != (i < 2) {
			t.Error("those without an address share one count")
		}
	}
	for i := range 3 * maxClients {
		l.allow(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), at)
	}
	if n := len(l.recent) + len(l.past); n > 2*maxClients {
		t.Errorf("%d clients are remembered", n)
	}
	if !allowed("192.0.2.1") {
		t.Error("a client that was forgotten is refused")
	}
}
