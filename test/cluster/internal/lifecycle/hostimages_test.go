// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"strings"
	"testing"
)

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
