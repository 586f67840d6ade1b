// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/accounttest"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// The URL table, at the tunnel's bind: what an agent of somebody else's making sends is refused with the code, the field and the rule.
func TestBindTakesAndRefusesTheURLTable(t *testing.T) {
	t.Parallel()
	s := New(Options{Logger: slog.New(slog.DiscardHandler)})
	bind := func(url string) (account.BindRequest, error) {
		return bindRequest(&session{token: &account.Authtoken{}}, tunnel.Bind{URL: url, UpstreamURL: "http://localhost:8080", UpstreamProtocol: "http1"})
	}
	for _, url := range accounttest.SameURLs() {
		if r, err := bind(url); err != nil || r.URL.String() != "http://a.b" {
			t.Errorf("%q became %s, %v; want http://a.b", url, r.URL, err)
		}
	}
	for _, row := range accounttest.RefusedURLs() {
		_, err := bind(row.URL)
		if err == nil {
			t.Errorf("%q was accepted", row.URL)
			continue
		}
		fields, told := account.FieldsOf(err), s.refusal(err)
		if len(fields) == 0 || fields[0].Field != "url" || told.Code != tunnel.CodeInvalid || !strings.Contains(told.Msg, row.Names) {
			t.Errorf("%q: the agent is told %s %q, which does not name %q of field url", row.URL, told.Code, told.Msg, row.Names)
		}
	}
}

func FuzzBindRequest(f *testing.F) {
	f.Add("http://a.b", "kubernetes", "name", "text", "http://localhost:8080", "http1", "passthrough")
	f.Add("tcp://a.b:1", "", "", "", "", "", "a\nb")
	f.Fuzz(func(t *testing.T, url, binding, name, text, upstream, protocol, hostMode string) {
		r, err := bindRequest(&session{token: &account.Authtoken{}}, tunnel.Bind{
			URL: url, Binding: binding, Name: name, Description: text, Metadata: text, UpstreamURL: upstream, UpstreamProtocol: protocol, HostMode: hostMode,
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
		if r.HostMode != "passthrough" && r.URL.Scheme == "tcp" || strings.ContainsAny(r.HostMode, " \r\n") {
			t.Errorf("accepted host mode %q for %s", r.HostMode, r.URL)
		}
	})
}

func TestRefusalsShowNoCause(t *testing.T) {
	t.Parallel()
	s := New(Options{Logger: slog.New(slog.DiscardHandler)})
	secret := errors.New("password=hunter2")
	for _, c := range []struct {
		err  error
		code tunnel.Code
	}{
		{secret, tunnel.CodeInternal},
		{&account.Error{Code: account.CodeUnavailable, Msg: "the store does not answer", Cause: secret}, tunnel.CodeUnavailable},
		{&account.Error{Code: account.CodeInternal, Msg: "something", Cause: secret}, tunnel.CodeInternal},
		{&account.Error{Code: account.CodeURLTaken, Msg: "taken"}, tunnel.CodeURLTaken},
		{&account.Error{Code: account.CodeTooMany, Msg: "too many"}, tunnel.CodeRateLimited},
		{&tunnel.Error{Code: tunnel.CodeLimit, Msg: "own words"}, tunnel.CodeLimit},
	} {
		got := s.refusal(c.err)
		if got.Code != c.code || strings.Contains(got.Error(), "hunter2") || got.Msg == "" {
			t.Errorf("%v became %+v", c.err, got)
		}
	}
}
