// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"os"
	"testing"
)

// progress prints what is being done, on a terminal or with -v, because everything takes minutes.
func progress(format string, args ...any) {
	if info, err := os.Stderr.Stat(); !testing.Verbose() && (err != nil || info.Mode()&os.ModeCharDevice == 0) {
		return
	}
	_, _ = fmt.Fprintf(os.Stderr, format+"\n", args...)
}
