// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/http/httpguts"

	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

func TestUpstreamRequest_SetsIdentityHeaders(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"Ann": "Ann", "Ann Ä": "Ann %C3%84", "a%b": "a%25b",
		"a\r\nX: y": "a%0D%0AX: y", " a ": "%20a%20", "\x00": "%00", "": ""} {
		if got := escapeHeader(text, ""); got != want || !httpguts.ValidHeaderFieldValue(got) {
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
	if removeReservedConnectionTokens(h); h["Connection"][0] != "Upgrade" || h["Connection"][1] != "keep-alive" {
		t.Errorf("Connection %q", h["Connection"])
	}
}

// TestJoinGroups_CountsTruncated sends the upstream the number of truncated groups; policy rules
// get all groups.
func TestJoinGroups_CountsTruncated(t *testing.T) {
	t.Parallel()
	groups := make([]string, 301)
	for i := range groups {
		groups[i] = fmt.Sprintf("department-%06d-x", i)
	}
	for name, c := range map[string]struct {
		upstream       []string
		named, missing int
	}{
		"all":              {nil, 204, 97},
		"by name":          {[]string{"department-000300-x", "department-000299-x", "other"}, 2, 0},
		"by beginning":     {[]string{"department-0000*", "department-000300-x"}, 101, 0},
		"by \"*\"":         {[]string{"*"}, 204, 97},
		"none":             {[]string{}, 0, 0},
		"too many by name": {[]string{"department-0001*", "department-0002*", "department-00001*"}, 204, 6},
	} {
		w := newHarness(t)
		w.config.UpstreamGroups, w.idp.authentication.Identity.Groups = c.upstream, groups
		b := w.browser()
		b.login("/")
		in := b.get("/", headerTruncated, "0")
		if in.upstream == nil || len(in.person.Groups) != len(groups) {
			t.Fatalf("%s: %d, rules have %d groups", name, in.Code, len(in.person.Groups))
		}
		named := 0
		if value := in.upstream.Header.Get(headerGroups); value != "" {
			named = strings.Count(value, ",") + 1
		}
		want := http.Header{}
		if c.missing > 0 {
			want.Set(headerTruncated, strconv.Itoa(c.missing))
		}
		got := in.upstream.Header.Values(headerTruncated)
		if named != c.named || !slices.Equal(got, want.Values(headerTruncated)) {
			t.Errorf("%s: %d groups are named, %q are missing; want %d, %d", name, named, got, c.named, c.missing)
		}
	}
}
