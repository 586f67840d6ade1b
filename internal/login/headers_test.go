// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http/httpguts"
)

func TestHeadersOfAPerson(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"Ann": "Ann", "Ann Ä": "Ann %C3%84", "a%b": "a%25b", "a\r\nX: y": "a%0D%0AX: y", " a ": "%20a%20", "\x00": "%00", "": ""} {
		if got := encode(text, ""); got != want || !httpguts.ValidHeaderFieldValue(got) {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	if got := joinGroups([]string{"a,b", "", "c d"}); got != "a%2Cb,c d" {
		t.Errorf("groups %q", got)
	}
	long := strings.Repeat("g", maxHeader/2)
	if got := joinGroups([]string{long, long, "last"}); got != long+",last" {
		t.Errorf("%d bytes of groups", len(got))
	}
	for name, ours := range map[string]bool{
		"Fairlead-Auth-Email": true, "fairlead_auth_email": true, "FAIRLEAD-X": true, "Fairlead_": true, "Fairlead.Auth.Email": true, "fairlead~auth-email": true, "Fairlead2-A": false, "Fairlead-Error-Code": true, "Fairlead": false, "Fairleading": false, "X-Fairlead-A": false,
	} {
		if isIdentity(name) != ours {
			t.Errorf("%s: %v", name, !ours)
		}
	}
	h := http.Header{"Connection": {"Upgrade, fairlead-auth-user-id", "Fairlead_Auth_Email,keep-alive"}}
	if dropFromConnection(h); h["Connection"][0] != "Upgrade" || h["Connection"][1] != "keep-alive" {
		t.Errorf("Connection %q", h["Connection"])
	}
}

func TestLimiter(t *testing.T) {
	t.Parallel()
	l, at := newLimiter(1, 2), time.Unix(1, 0)
	allowed := func(addr string) bool { return l.allow(netip.MustParseAddr(addr), at) }
	if !allowed("192.0.2.1") || !allowed("::ffff:192.0.2.1") || allowed("192.0.2.1") || !allowed("192.0.2.2") {
		t.Error("of IPv4, each address counts")
	}
	if !allowed("2001:db8::1") || !allowed("2001:db8:0:0:ffff::1%eth0") || allowed("2001:db8::2") || !allowed("2001:db8:0:1::1") {
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
