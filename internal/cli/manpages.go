// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build manpages

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/cli/manpage"
)

// addManpages adds a hidden command that writes the manual pages of the program to a directory.
func addManpages(root *cobra.Command) {
	root.AddCommand(&cobra.Command{Use: "manpages DIR DATE", Hidden: true, Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			date, err := time.Parse(time.DateOnly, args[1])
			if err != nil {
				return Usagef("DATE %q: give YYYY-MM-DD", args[1])
			}
			for name, text := range manpage.Pages(root, date) {
				if err := os.WriteFile(filepath.Join(args[0], name), []byte(text), 0o644); err != nil {
					return fmt.Errorf("writing a manual page: %w", err)
				}
			}
			return nil
		}})
}
