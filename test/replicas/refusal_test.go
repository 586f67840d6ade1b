// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// changed returns the server's command line with a flag's value changed; without a value the flag
// is left out.
func (s *replica) changed(flag, value string) []string {
	args := s.args()
	for i := range args {
		if args[i] == flag {
			if value == "" {
				return append(args[:i:i], args[i+2:]...)
			}
			args[i+1] = value
		}
	}
	return args
}

// TestReplicas_RefuseOtherSettings starts servers whose settings differ from those of the others.
func TestReplicas_RefuseOtherSettings(t *testing.T) {
	t.Parallel()
	r := startRig(t, 2)
	key := filepath.Join(r.dir, "other.key")
	must.Succeed(t, os.WriteFile(key, []byte(strings.Repeat("ab", 32)), 0o600))
	s := r.newReplica(2, true)
	taken := r.replicas[0].relay
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{s.changed("--database-url", ""), 2, fmt.Sprintf("--relay-address %q: is for several servers on one "+
			"PostgreSQL database; give --database-url, or leave --relay-address out: SQLite has one server", s.relay)},
		{s.changed("--secret-key-file", key), 2, "the secret key is not the one with which this store's"},
		{s.changed("--base-url", "https://127.0.0.1:1"), 2, fmt.Sprintf("--base-url \"https://127.0.0.1:1\": "+
			"is not %q, that of the live server rp-", "https://"+r.balancer.addrs[frontService])},
		{s.changed("--relay-address", ""), 1,
			"it is in use by several fairlead-servers; start this one as a replica, too"},
		{s.changed("--relay-address", taken), 1, fmt.Sprintf("--relay-address %q: the port is in use; stop the "+
			"program that listens there, or choose another port", taken)},
	} {
		p := startProcess(t, "refused server", r.env(), c.args...)
		code := p.exitCode()
		lines := strings.Split(strings.TrimSpace(p.log.String()), "\n")
		if last := lines[len(lines)-1]; code != c.code || !strings.HasPrefix(last, "fairlead-server: ") ||
			!strings.Contains(last, c.text) {
			t.Errorf("exit code %d, want %d and %q:\n%s", code, c.code, c.text, last)
		}
	}
	if ids := r.registered(); len(ids) != 2 {
		t.Errorf("registered are %v", ids)
	}
}
