// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package must

import (
	"io"
	"slices"
	"testing"
)

// recorder is a test that records how it ends.
type recorder struct {
	testing.TB
	fatal []any
}

func (r *recorder) Helper()           {}
func (r *recorder) Fatal(args ...any) { r.fatal = args }

func TestSucceed_EndsTestOnError(t *testing.T) {
	t.Parallel()
	r := &recorder{TB: t}
	if Succeed(r, nil); r.fatal != nil {
		t.Errorf("without an error the test ends: %v", r.fatal)
	}
	if Succeed(r, io.EOF); !slices.Equal(r.fatal, []any{io.EOF}) {
		t.Errorf("on an error the test ends with %v", r.fatal)
	}
}
