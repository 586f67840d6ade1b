// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/packaging/internal/release"
)

// runDraft runs some steps on the checkout as it is: no key is needed, the tree may be dirty, and
// other files of the folder stay.
func runDraft(ctx context.Context, args []string) error {
	var o release.Options
	var names string
	flags := flag.NewFlagSet("draft", flag.ContinueOnError)
	flags.StringVar(&o.Version, "version", "", "the version, with v: v0.2.0-dev")
	flags.StringVar(&o.Source, "source", "..", "the checkout")
	flags.StringVar(&o.Dist, "dist", "../dist", "the folder to write into")
	flags.StringVar(&o.Platforms, "platform", "", "OS/ARCH, separated by commas (default: all)")
	flags.StringVar(&names, "steps", "", "the steps to run, separated by commas, as `build` names them")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := chooseSteps(names)
	if err != nil {
		return err
	}
	o.Unreleased = true
	r, err := release.Draft(ctx, o)
	if err != nil {
		return err
	}
	if err := runSteps(ctx, r, chosen); err != nil {
		return err
	}
	return r.Finish()
}

// chooseSteps returns the steps of a list of names, in the order of a release.
func chooseSteps(names string) ([]step, error) {
	wanted := strings.Split(names, ",")
	var chosen []step
	for _, s := range steps() {
		if i := slices.Index(wanted, s.name); i >= 0 {
			chosen, wanted = append(chosen, s), slices.Delete(wanted, i, i+1)
		}
	}
	if len(wanted) > 0 {
		return nil, fmt.Errorf("-steps: %q is no step of a release; its steps are %s", wanted[0], stepNames())
	}
	return chosen, nil
}

func stepNames() string {
	var names []string
	for _, s := range steps() {
		names = append(names, s.name)
	}
	return strings.Join(names, ", ")
}
