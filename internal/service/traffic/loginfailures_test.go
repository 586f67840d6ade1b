// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestLoginFailures_AreKeptForADay records failures that are equal, and others.
func TestLoginFailures_AreKeptForADay(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, 0)
	fail := func(reason string) {
		r.LoginFailed("ac-1", LoginFailure{At: r.at, EndpointID: "ep-1", Step: "callback", Reason: reason})
	}
	fail("first")
	r.at = r.at.Add(time.Hour)
	fail("second")
	fail("first")
	got, c := r.LoginFailures(t.Context(), "ac-1", 10)
	if len(got) != 2 || got[0].Reason != "first" && got[1].Reason != "first" || !c.Since.Equal(epoch) {
		t.Fatalf("%+v, %+v", got, c)
	}
	for _, f := range got {
		if want := map[string]int{"first": 2, "second": 1}[f.Reason]; f.Count != want || !f.At.Equal(r.at) {
			t.Errorf("%+v, want %d", f, want)
		}
	}
	r.at = r.at.Add(keepFailures + time.Second)
	if got, _ := r.LoginFailures(t.Context(), "ac-1", 10); len(got) != 0 {
		t.Errorf("after a day: %+v", got)
	}
	r.pass(12)
	if r.failures.n != 0 || r.failures.size != 0 || len(r.failures.of) != 0 {
		t.Errorf("after a day, %d failures and %d bytes are left", r.failures.n, r.failures.size)
	}
}

// TestLoginFailures_AreBounded floods the failures of one account.
func TestLoginFailures_AreBounded(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, 0)
	r.LoginFailed("ac-small", LoginFailure{At: r.at, Reason: "the one that counts"})
	for account := range 45 {
		for i := range 110 {
			r.LoginFailed(fmt.Sprintf("ac-%d", account), LoginFailure{At: r.at, Shown: strings.Repeat("s ", 50),
				Reason: fmt.Sprint(i, strings.Repeat(" r", 50))})
		}
	}
	if r.failures.n > maxFailures || r.failures.size > 8<<20 {
		t.Errorf("%d failures in %d bytes", r.failures.n, r.failures.size)
	}
	if got, _ := r.LoginFailures(t.Context(), "ac-small", 10); len(got) != 1 {
		t.Errorf("the small account has %d failures", len(got))
	}
}

// TestCleanText_RemovesTokens has sentences of providers and of libraries, with planted secrets.
func TestCleanText_RemovesTokens(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`the provider answered "access_denied" "AADSTS50105: The user 'a@example.com' is not assigned"`: "",
		`the issuer is "https://login.example.com/9188040d-6c67-4c5b-b112-36a304b66dad/v2.0"`:           "",
		`Get "https://idp.example/cb?code=planted1&state=planted2": EOF`: `Get "https://idp.example/cb?code=…` +
			`&state=…": EOF`,
		"id_token=planted3 refused":                                 "id_token=… refused",
		"https://user:planted4@idp.example/":                        "https://…@idp.example/",
		"token eyJhbGciOi.eyJzdWIi.c2ln is bad":                     "token … is bad",
		"Authorization: Bearer planted5planted":                     "Authorization: Bearer …",
		"session 0123456789abcdefPLANTED refused":                   "session … refused",
		"<script>alert(1)</script>\u202e\x1b[31m":                   `<script>alert(1)</script>\u202e\x1b[31m`,
		"unauthorized_client_is_a_long_word_without_digits is kept": "",
	} {
		if want == "" {
			want = in
		}
		if got := cleanText(in, maxFailureText); got != want {
			t.Errorf("%s\nbecame %s\nwant   %s", in, got, want)
		}
	}
	if got := cleanText(strings.Repeat("ä ", 1000), 500); len([]rune(got)) != 501 {
		t.Errorf("%d characters", len([]rune(got)))
	}
}
