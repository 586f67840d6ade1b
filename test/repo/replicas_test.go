// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

var haproxyBlock = regexp.MustCompile("(?s)```haproxy\n(.*?)```")

// TestReplicas_HAProxyAcceptsConfig checks that HAProxy takes the configuration of the guide.
func TestReplicas_HAProxyAcceptsConfig(t *testing.T) {
	t.Parallel()
	haproxy, err := exec.LookPath("haproxy")
	if err != nil {
		t.Skip("this machine has no haproxy")
	}
	block := haproxyBlock.FindSubmatch(read(t, "docs/run/replicas.md"))
	if block == nil {
		t.Fatal("docs/run/replicas.md has no configuration of HAProxy")
	}
	for _, bad := range []bool{false, true} {
		config := block[1]
		if bad {
			config = bytes.Replace(config, []byte("balance roundrobin"), []byte("balance by-mood"), 1)
		}
		path := filepath.Join(t.TempDir(), "haproxy.cfg")
		must.Succeed(t, os.WriteFile(path, config, 0o600))
		out, err := exec.CommandContext(t.Context(), haproxy, "-c", "-f", path).CombinedOutput()
		if refused := err != nil || strings.Contains(string(out), "[WARNING]"); refused != bad {
			t.Errorf("bad %v: haproxy says %s(%v)", bad, out, err)
		}
	}
}

// TestReplicas_SystemdDropIn checks that systemd takes the drop-in of the server's unit.
func TestReplicas_SystemdDropIn(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("this machine has no systemd-analyze, which knows what units may say")
	}
	for _, further := range []string{"", "NoSuchSetting=yes\n"} {
		dir := t.TempDir()
		unit := filepath.Join(dir, "fairlead-server.service")
		must.Succeed(t, os.Mkdir(unit+".d", 0o700))
		for from, to := range map[string]string{"fairlead-server.service": unit,
			"fairlead-server-replica.conf": unit + ".d/replica.conf"} {
			text := bytes.ReplaceAll(read(t, "packaging/systemd/"+from), []byte("=/usr/local/bin/fairlead-server "),
				[]byte("=/bin/true "))
			if to != unit {
				text = append(text, further...)
			}
			must.Succeed(t, os.WriteFile(to, text, 0o600))
		}
		out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", unit).CombinedOutput()
		if said := err != nil || len(out) > 0; said != (further != "") {
			t.Errorf("%q: systemd-analyze verify says %s(%v)", further, out, err)
		}
	}
}
