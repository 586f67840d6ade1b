// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// people are three sessions of two.
func (a *accountAPI) people() (alice, session string) {
	live := a.Login("alice", "s1", func(l *account.NewLogin) { l.Device.UserAgent.OSName = "macOS" })
	a.Login("alice", "s2", func(l *account.NewLogin) {
		l.URL, l.Device.IPAddress = "https://wiki.example.com", "2001:db8::7"
	})
	a.Login("bob", "s3", func(l *account.NewLogin) { l.Provider.Name = "GitHub" })
	return live.Identity.ID, live.ID
}

func TestIdentities_Commands(t *testing.T) {
	t.Parallel()
	a := newAccountAPI(t)
	alice, session := a.people()
	_, secret, err := a.Store.IssueAPIKey(t.Context(), a.AccountID, "", []account.Scope{account.ScopeIdentities}, nil)
	storetest.Must(t, err)
	a.env[envAPIKey] = secret
	table := a.api(0, "identities", "list", "--search", "ALICE", "-o", "wide").out
	if !regexp.MustCompile(`(?m)^ID +USER +PROVIDER +EMAIL +NAME +PROVIDER ID +LAST ACTIVE\n` + alice +
		` +alice +Example ID +alice@example.com +ALICE +sub-alice +` + tableTime + `\n$`).MatchString(table) {
		t.Errorf("table:\n%s", table)
	}
	for args, lines := range map[string]int{"identities list": 3, "identities list --provider git": 2,
		"identities list --search no-such": 1, "identities sessions": 4, "identities sessions " + alice: 3,
		"identities sessions --search wiki": 2, "identities sessions --provider GITHUB": 2,
		"identity endpoints " + alice:           3,
		"identities sessions --search 2001:db8": 2} {
		if out := a.api(0, strings.Fields(args)...).out; strings.Count(out, "\n") != lines {
			t.Errorf("%s prints\n%s", args, out)
		}
	}
	storetest.Equal(t, "identity", a.object("identities", "get", alice)["provider_user_id"], any("sub-alice"))
	storetest.Equal(t, "session", a.object("identities", "get", "session/"+session)["public_url"],
		any("https://app.example.com"))
	if text := a.api(0, "identities", "get", session).out; !strings.Contains(text, "ip_address=203.0.113.9") {
		t.Errorf("get:\n%s", text)
	}
	a.api(1, "identities", "get", "au-none")
	a.api(1, "identities", "sessions", "au-none") // not an empty list
	if r := a.api(0, "identities", "revoke", "--session", "session/"+session, "--yes"); r.out != "" ||
		!strings.Contains(r.err, session+" revoked") {
		t.Errorf("revoking a session prints %+v", r)
	}
	storetest.Equal(t, "live", fmt.Sprint(a.Lives("s1"), a.Lives("s2")), "false true")
	a.api(exitUsage, "identities", "revoke", "--session", session, "--sessions-only", "--yes")
	if r := a.api(0, "identities", "revoke", alice, "--sessions-only", "--yes"); r.out != "" ||
		!strings.Contains(r.err, "sessions of identity "+alice+" revoked") {
		t.Errorf("ending all sessions prints %+v", r)
	}
	storetest.Equal(t, "live", fmt.Sprint(a.Lives("s2"), a.Lives("s3")), "false true")
	if r := a.api(0, "identities", "revoke", alice, "--yes"); r.out != "" ||
		!strings.Contains(r.err, alice+" revoked") {
		t.Errorf("revoking prints %+v", r)
	}
	storetest.Equal(t, "live", fmt.Sprint(a.Lives("s2"), a.Lives("s3")), "false true")
	a.api(1, "identities", "revoke", alice, "--yes")
	a.api(1, "api-keys", "list") // the scope
	for args, part := range map[string]string{"revoke": "needs the ID",
		"revoke " + alice + " --session " + session: "not both", "revoke " + session: "--session " + session,
		"revoke " + alice: "no terminal to ask at: give --yes", "revoke a b": "one argument at most",
		"list --search " + strings.Repeat("x", 256): "--search", "endpoints": "needs one argument",
		"sessions a b": "one argument", "get": "the ID of an identity",
		"sessions " + session: "identities get " + session} {
		if r := a.api(exitUsage, append([]string{"identities"}, strings.Fields(args)...)...); !strings.Contains(r.err,
			part) {
			t.Errorf("%s: %s", args, r.err)
		}
	}
}

// readerFunc is a terminal that a test reads from.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestRevoke_Confirms(t *testing.T) {
	t.Parallel()
	a := newAccountAPI(t)
	alice, session := a.people()
	revoke := func(ctx context.Context, terminal io.Reader, args ...string) (int, string) {
		var errOut bytes.Buffer
		code := run(ctx, append([]string{"api", "identities", "revoke"}, args...),
			console{in: terminal, out: &errOut, err: &errOut, asks: true,
				env: func(k string) string { return a.env[k] }})
		return code, errOut.String()
	}
	for _, answer := range []string{"no\n", "", "y e s\n"} {
		code, printed := revoke(t.Context(), strings.NewReader(answer), alice)
		if code != 1 || !strings.Contains(printed, "nothing was revoked") {
			t.Errorf("%q: %d %s", answer, code, printed)
		}
	}
	ctx, interrupt := context.WithCancel(t.Context())
	never := make(chan struct{})
	defer close(never)
	stuck := readerFunc(func([]byte) (int, error) { interrupt(); <-never; return 0, io.EOF })
	code, printed := revoke(ctx, stuck, alice)
	if code != 1 || !strings.Contains(printed, "nothing was revoked") {
		t.Errorf("interrupted: %d %s", code, printed)
	}
	var prompts []string
	for _, args := range [][]string{{"--session", session}, {alice, "--sessions-only"}, {alice}} {
		code, printed := revoke(t.Context(), strings.NewReader(" Yes\n"), args...)
		prompt, _, asked := strings.Cut(printed, `Type "yes": `)
		if prompts = append(prompts, prompt+`Type "yes": `); code != 0 || !asked {
			t.Errorf("%v: %d %s", args, code, printed)
		}
	}
	storetest.Equal(t, "asked", strings.Join(prompts, "\n"),
		`End the session at https://app.example.com of alice <alice@example.com> (Example ID, `+alice+
			`)? What it has open is cut. Type "yes": `+
			"\n"+`Sign out alice <alice@example.com> (Example ID, `+alice+
			`)? Their one session ends at once, and what they have open is cut. Type "yes": `+
			"\n"+`Revoke alice <alice@example.com> (Example ID, `+alice+
			`)? Their 0 sessions end at once, and what they have open is cut. Type "yes": `)
	storetest.Equal(t, "live", fmt.Sprint(a.Lives("s1"), a.Lives("s2"), a.Lives("s3")), "false false true")
}
