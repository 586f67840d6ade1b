// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// caCommands are commands about the authority of a data directory.
type caCommands struct {
	*testing.T
	dir string
}

func (c caCommands) refused(want string, args ...string) {
	c.Helper()
	code, _, errs := command(c.T, append(args, "--data-dir", c.dir)...)
	if code != 1 || !strings.Contains(errs, want) {
		c.Errorf("%v: exit %d, %q, want %q", args, code, errs, want)
	}
}

func (c caCommands) printed(args ...string) string {
	c.Helper()
	out, _ := ok(c.T, append(args, "--data-dir", c.dir)...)
	return out
}

// states returns what `ca show` prints, and the states in it.
func (c caCommands) states() (all string, shown []authorityJSON) {
	c.Helper()
	must.Succeed(c.T, json.Unmarshal([]byte(c.printed("ca", "show", "-o", "json")), &shown))
	for _, a := range shown {
		all += a.State + " "
	}
	return all, shown
}

// TestCA_ReplacesAuthority goes through the steps beside a server, and what each refuses.
func TestCA_ReplacesAuthority(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log, _ := served(t, dir)
	c := caCommands{t, dir}
	first := c.printed("ca")
	c.refused("there is no next authority: make one with `fairlead-server ca next`", "ca", "promote")
	c.refused("`fairlead-server ca promote` comes first", "ca", "retire")
	c.printed("ca", "next")
	both := c.printed("ca")
	if !strings.HasPrefix(both, first) || strings.Count(both, "BEGIN CERTIFICATE") != 2 {
		t.Errorf("`ca` does not print both: %s", both)
	}
	for file, mode := range map[string]os.FileMode{"ca-next.crt": 0o644, "ca-next.key": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, file)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
	c.refused("`fairlead-server ca promote` puts it into service", "ca", "next")
	var shown []authorityJSON
	wait.Until(t, "the announcement", func() bool {
		_, shown = c.states()
		return len(shown) == 2 && shown[1].Untold != nil && *shown[1].Untold == 0
	})
	c.refused("clients that are not connected have until", "ca", "promote")
	_, errs := ok(t, "ca", "promote", "--force", "--data-dir", dir)
	if !strings.Contains(errs, "Warning: clients are cut off") {
		t.Errorf("--force gives no warning: %q", errs)
	}
	if all, _ := c.states(); all != "current retiring " {
		t.Errorf("after the promotion there are %s", all)
	}
	bundle := filepath.Join(t.TempDir(), "both.crt") // a file with several, which a client was given in time
	must.Succeed(t, os.WriteFile(bundle, []byte(both), 0o600))
	address := regexp.MustCompile(`"addr":"[^"]*:(\d+)"`).FindStringSubmatch(log.String())
	ok(t, "healthcheck", "--url", "https://localhost:"+address[1], "--ca-file", bundle)
	wait.Until(t, "a certificate of the promoted authority", func() bool {
		code, _, _ := command(t, "healthcheck", "--url", "https://localhost:"+address[1],
			"--ca-sha256", shown[1].SHA256)
		return code == 0
	})
	if now := c.printed("ca"); now+first == both || first+now != both {
		t.Errorf("`ca` prints %s", now)
	}
	c.refused("`fairlead-server ca retire` ends that", "ca", "next")
	c.printed("ca", "retire")
	if all, _ := c.states(); all != "current " {
		t.Errorf("at the end there are %s", all)
	}
}
