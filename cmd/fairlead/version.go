// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/version"
)

func newVersion(c console) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  fairlead version",
		Args:    noArguments,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(c.out, "fairlead %s (revision %s, %s, %s/%s)\n", version.String(), version.Revision(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usagef("%s takes no argument, and got %q", cmd.CommandPath(), args[0])
}
