// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"testing"

	"github.com/spf13/pflag"
)

func TestFlagError_InvalidValues(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{
		"--count=many":                `--count "many": give a whole number`,
		"--count=1.5":                 `--count "1.5": give a whole number`,
		"--count=9999999999999999999": `--count "9999999999999999999": the number is too large, or less than it may be`,
		"--size=-1":                   `--size "-1": give a whole number of 0 or more`,
		"--part=half":                 `--part "half": give a number, such as 0.5`,
		"--on=maybe":                  `--on "maybe": give true or false`,
		"--wait=5":                    `--wait "5": give a duration, such as 30s, 10m or 2h`,
		"--label=x":                   `invalid argument "x" for "--label" flag: x must be formatted as key=value`,
		"--unknown":                   "unknown flag: --unknown",
	} {
		f := pflag.NewFlagSet("test", pflag.ContinueOnError)
		f.SetOutput(io.Discard)
		f.Int("count", 0, "")
		f.Uint16("size", 0, "")
		f.Float64("part", 0, "")
		f.Bool("on", false, "")
		f.Duration("wait", 0, "")
		f.StringToString("label", nil, "")
		if err := f.Parse([]string{arg}); err == nil || valueProblem(err) != want {
			t.Errorf("%s: %v, worded %q, want %q", arg, err, valueProblem(err), want)
		}
	}
}
