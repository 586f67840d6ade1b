// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/accounttest"
)

// discard drops what is logged.
var discard = slog.New(slog.DiscardHandler)

// TestBind_NamesBrokenURLRule requires that an invalid URL is refused with the code, the field and
// the rule.
func TestBind_NamesBrokenURLRule(t *testing.T) {
	t.Parallel()
	bind := func(url string) (account.BindRequest, error) {
		return bindRequest(&session{token: &account.TunnelCredential{}},
			tunnel.Bind{URL: url, UpstreamURL: "http://localhost:8080",
				UpstreamProtocol: "http1"})
	}
	for _, url := range accounttest.SameURLs() {
		if r, err := bind(url); err != nil || r.URL != "http://a.b" {
			t.Errorf("%q became %s, %v; want http://a.b", url, r.URL, err)
		}
	}
	for _, row := range accounttest.RefusedURLs() {
		_, err := bind(row.URL)
		if err == nil {
			t.Errorf("%q was accepted", row.URL)
			continue
		}
		fields, told := account.FieldsOf(err), refusal(discard, err)
		if len(fields) == 0 || fields[0].Field != "url" || told.Code != tunnel.CodeInvalid ||
			!strings.Contains(told.Msg, row.Names) {
			t.Errorf("%q: the agent is told %s %q, which does not name %q of field url", row.URL, told.Code, told.Msg,
				row.Names)
		}
	}
}

func FuzzBindRequest(f *testing.F) {
	f.Add("http://a.b", "kubernetes", "name", "text", "http://localhost:8080", "http1", "passthrough")
	f.Add("tcp://a.b:1", "", "", "", "", "", "a\nb")
	f.Fuzz(func(t *testing.T, url, binding, name, text, upstream, protocol, hostMode string) {
		r, err := bindRequest(&session{token: &account.TunnelCredential{}}, tunnel.Bind{
			URL: url, Binding: binding, Name: name, Description: text, Metadata: text, UpstreamURL: upstream,
			UpstreamProtocol: protocol, HostMode: hostMode,
		})
		if err != nil {
			if len(account.FieldsOf(err)) == 0 {
				t.Errorf("%v names no field", err)
			}
			return
		}
		if err := r.Validate(); err != nil {
			t.Errorf("accepted, but the store would refuse it: %v", err)
		}
		if r.HostMode != "passthrough" && r.Scheme == "tcp" || strings.ContainsAny(r.HostMode, " \r\n") {
			t.Errorf("accepted host mode %q for %s", r.HostMode, r.URL)
		}
	})
}

// TestRefusal_ListsBrokenRulesThatFit requires that a refusal fits a control message of 60 KiB,
// however many rules are broken.
func TestRefusal_ListsBrokenRulesThatFit(t *testing.T) {
	t.Parallel()
	few := []account.FieldError{{Field: "name", Value: "x", Rule: "is taken"},
		{Field: "traffic_policy", Rule: "line 3, column 5: x", Line: 3, Column: 5}}
	got := refusal(discard, account.InvalidAll(few))
	if len(got.Errors) != 2 || account.FieldError(got.Errors[0]) != few[0] ||
		account.FieldError(got.Errors[1]) != few[1] {
		t.Errorf("%+v", got)
	}
	many := slices.Repeat([]account.FieldError{{Field: "traffic_policy", Value: strings.Repeat("\x01", 80),
		Rule: strings.Repeat("<", 300)}}, 50)
	got = refusal(discard, account.InvalidAll(many))
	b, err := json.Marshal(got)
	last := got.Errors[len(got.Errors)-1]
	if err != nil || len(b) > 55<<10 || len(got.Errors) < 5 || last.Rule != fmt.Sprintf("%d more mistakes",
		51-len(got.Errors)) {
		t.Errorf("%d bytes, %d errors, the last is %+v, %v", len(b), len(got.Errors), last, err)
	}
}

func TestRefusal_HidesCause(t *testing.T) {
	t.Parallel()
	secret := errors.New("password=hunter2")
	for _, c := range []struct {
		err  error
		code tunnel.Code
	}{
		{secret, tunnel.CodeInternal},
		{&account.Error{Code: account.CodeUnavailable, Msg: "the store does not answer", Cause: secret},
			tunnel.CodeUnavailable},
		{&account.Error{Code: account.CodeInternal, Msg: "something", Cause: secret}, tunnel.CodeInternal},
		{&account.Error{Code: account.CodeURLTaken, Msg: "taken"}, tunnel.CodeURLTaken},
		{&account.Error{Code: account.CodeTooMany, Msg: "too many"}, tunnel.CodeRateLimited},
		{&tunnel.Error{Code: tunnel.CodeLimit, Msg: "own words"}, tunnel.CodeLimit},
	} {
		got := refusal(discard, c.err)
		if got.Code != c.code || strings.Contains(got.Error(), "hunter2") || got.Msg == "" {
			t.Errorf("%v became %+v", c.err, got)
		}
	}
}
