// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// maxExposure is what `systemd-analyze security` may say of a unit, in tenths: up to 2 of 10. An
// unprotected service has 9.6.
const maxExposure = "20"

// systemd knows every setting of the units, and finds them well protected. The program itself need
// not be installed here.
func TestSystemdUnits(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("this machine has no systemd-analyze, which knows what units may say")
	}
	units, err := filepath.Glob("../../packaging/systemd/*.service")
	if err != nil || len(units) != 2 {
		t.Fatalf("units %v, %v", units, err)
	}
	dir := t.TempDir()
	program := regexp.MustCompile(`(?m)^(ExecStart=)/usr/local/bin/fairlead(-server)? `)
	for _, unit := range append(units, "unknown setting") {
		text, bad := []byte("[Service]\nExecStart=/bin/true\nNoSuchSetting=yes\n"), unit == "unknown setting"
		name := "unknown.service"
		if !bad {
			name = filepath.Base(unit)
			text, err = os.ReadFile(unit)
			must.Succeed(t, err)
			if !program.Match(text) {
				t.Errorf("%s: its program is not in /usr/local/bin", name)
			}
			text = program.ReplaceAll(text, []byte("${1}/bin/true "))
		}
		path := filepath.Join(dir, name)
		must.Succeed(t, os.WriteFile(path, text, 0o600))
		out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", path).CombinedOutput()
		if said := err != nil || len(out) > 0; said != bad {
			t.Errorf("%s: systemd-analyze verify says %s(%v)", name, out, err)
		}
		out, err = exec.CommandContext(t.Context(), analyze, "security", "--no-pager", "--offline=yes",
			"--threshold="+maxExposure, path).CombinedOutput()
		if exposed := err != nil; exposed != bad {
			t.Errorf("%s: systemd-analyze security says %s(%v)", name, out, err)
		}
	}
}
