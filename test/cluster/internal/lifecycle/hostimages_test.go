// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/cluster/internal/state"
)

func TestHostImages_OrdinaryClusterNeedsOnlyCurl(t *testing.T) {
	t.Parallel()
	names := func(o state.Options) (images, programs []string) {
		for _, img := range hostImages(o) {
			images = append(images, img.name)
		}
		for _, p := range needed(hostImages(o)) {
			programs = append(programs, p.Name)
		}
		return images, programs
	}
	if images, programs := names(state.Options{}); !slices.Equal(images, []string{"fairlead.test/curl:1"}) ||
		!slices.Equal(programs, []string{"curl", "bash", "sleep"}) {
		t.Errorf("images %q of %q", images, programs)
	}
	images, programs := names(state.Options{MultiCluster: true})
	if want := []string{"fairlead.test/curl:1", "docker.io/alpine/socat:1.7.4.4",
		"docker.io/nicolaka/netshoot:v0.15"}; !slices.Equal(images, want) {
		t.Errorf("images %q, want %q", images, want)
	}
	if want := []string{"curl", "bash", "sleep", "sh", "awk", "grep", "socat", "tr", "nc.openbsd", "nslookup",
		"tail"}; !slices.Equal(programs, want) {
		t.Errorf("programs %q, want %q, each once", programs, want)
	}
}

func TestPackHostImages_PlacesProgramsAndUser(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "images")
	if err := packHostImages(t.Context(), dir, []hostImage{
		{name: "x.test/a:1", user: "0:0", programs: []hostProgram{{"/opt/shell", "sh", "dash"}}},
		{name: "x.test/b:1", programs: []hostProgram{{"/bin/sleep", "sleep", "coreutils"}}},
	}); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string][]string{
		"0.tar": {`"User":"0:0"`, `"x.test/a:1"`, "opt/shell"},
		"1.tar": {`"User":"65532:65532"`, `"x.test/b:1"`, "bin/sleep"},
	} {
		archive, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range want {
			if !bytes.Contains(archive, []byte(text)) {
				t.Errorf("%s has no %s", file, text)
			}
		}
	}
	if err := packHostImages(t.Context(), filepath.Join(dir, "c"), []hostImage{{name: "x.test/c:1",
		programs: []hostProgram{{"/x", "no-such-program", "none"}}}}); err == nil ||
		!strings.Contains(err.Error(), "packing the image x.test/c:1") {
		t.Errorf("a missing program: %v", err)
	}
}

func TestParseLdd(t *testing.T) {
	t.Parallel()
	got, err := parseLdd(
		"\tlinux-vdso.so.1 (0x00007ffd)\n\tlibz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 " +
			"(0x00007f)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n")
	if want := []string{"/lib/x86_64-linux-gnu/libz.so.1", "/lib64/ld-linux-x86-64.so.2"}; err != nil ||
		!slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	if _, err := parseLdd("\tlibx.so => not found\n"); err == nil || !strings.Contains(err.Error(), "libx.so") {
		t.Errorf("a missing library: %v", err)
	}
}
