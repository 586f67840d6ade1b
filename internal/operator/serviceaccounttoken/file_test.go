// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccounttoken

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/logbuffer"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// tokenFor returns a token that expires at exp. Its signature is not one.
func tokenFor(name string, exp time.Time) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"RS256"}`)) + "." +
		encode(fmt.Appendf(nil, `{"exp":%d,"sub":%q}`, exp.Unix(), name)) + "." + encode([]byte("signature"))
}

// fixture is a File whose clock and content the test sets.
type fixture struct {
	*File
	t     *testing.T
	clock *clocktesting.FakePassiveClock
	logs  *logbuffer.Buffer
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	x := &fixture{t: t, clock: clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0)), logs: &logbuffer.Buffer{}}
	x.File = New(filepath.Join(t.TempDir(), "token"), slog.New(slog.NewTextHandler(x.logs, nil)))
	x.File.clock = x.clock
	return x
}

func (x *fixture) write(text string) {
	x.t.Helper()
	must.Succeed(x.t, os.WriteFile(x.path, []byte(text), 0o600))
}

func (x *fixture) expect(want string) {
	x.t.Helper()
	if got, err := x.Read(); err != nil || got != want {
		x.t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestFile_FollowsRotation(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	for i := range 3 {
		token := tokenFor(fmt.Sprint(i), x.clock.Now().Add(time.Hour))
		x.write(token + "\n")
		x.expect(token)
	}
	if logs := x.logs.String(); logs != "" {
		t.Errorf("rotations are logged: %s", logs)
	}
}

func TestFile_KeepsLastTokenWhileItIsValid(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*fixture){
		"missing": func(x *fixture) { _ = os.Remove(x.path) },
		"empty":   func(x *fixture) { x.write(" \n") },
		"API key": func(x *fixture) { x.write("flk_secret") },
		"endless": func(x *fixture) { x.write(strings.Repeat(" ", maxSize) + x.last) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newFixture(t)
			token := tokenFor("a", x.clock.Now().Add(time.Hour))
			x.write(token)
			x.expect(token)
			spoil(x)
			x.expect(token)
			x.expect(token)
			if n := strings.Count(x.logs.String(), "level=ERROR"); n != 1 {
				t.Errorf("%d log lines, want 1: %s", n, x.logs)
			}
			x.clock.SetTime(x.clock.Now().Add(time.Hour))
			if got, err := x.Read(); account.CodeOf(err) != account.CodeNoCredential ||
				!strings.Contains(err.Error(), x.path) {
				t.Errorf("after its end: got %q, %v", got, err)
			}
			next := tokenFor("b", x.clock.Now().Add(time.Hour))
			x.write(next)
			x.expect(next)
			logs := x.logs.String()
			if !strings.Contains(logs, "valid again") || strings.Contains(logs, "flk_secret") ||
				strings.Contains(logs, token) {
				t.Errorf("log: %s", logs)
			}
		})
	}
}

func TestFile_LogsExpiredTokenOnceAndPresentsIt(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	token := tokenFor("a", x.clock.Now())
	x.write(token)
	x.expect(token)
	x.expect(token)
	logs := x.logs.String()
	if strings.Count(logs, "has expired at 2027-01-15T08:00:00Z") != 1 || !strings.Contains(logs, "kubelet") {
		t.Errorf("log: %s", logs)
	}
}

func TestCheckFile_RefusesOtherCredentials(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for content, ok := range map[string]bool{"": true, "flk_x": false, "a.b.c": false, "a.e30.c": false,
		tokenFor("a", time.Unix(1, 0)): true} {
		path := filepath.Join(dir, "file")
		must.Succeed(t, os.WriteFile(path, []byte(content), 0o600))
		if err := CheckFile(path); (err == nil) != ok {
			t.Errorf("%q: %v", content, err)
		}
	}
	if err := CheckFile(filepath.Join(dir, "none")); err != nil {
		t.Errorf("a file that is not there yet: %v", err)
	}
}
