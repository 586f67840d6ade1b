// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/service"
)

func newBootstrap(c console, at *dataLocation) *cobra.Command {
	var remove bool
	cmd := &cobra.Command{
		Use:   "bootstrap",
		Short: "Print the secrets of the first start",
		Long: `Print the secrets of the first start, and how to use them. A server without a terminal writes them to
a file of the data directory. In a container, this command is the way to read that file.`,
		Example: `  fairlead-server bootstrap --remove
  kubectl exec deployment/fairlead-server -- /fairlead-server bootstrap`,
		Args: arguments(),
		RunE: func(*cobra.Command, []string) error {
			file := filepath.Join(at.dataDir, service.BootstrapFileName)
			text, err := os.ReadFile(file)
			if errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf(
					"there is no %s: it was removed, or the first start printed its secrets elsewhere; make new ones "+
						"with `fairlead-server api-key create` and `fairlead-server authtoken create --connect '*'`",
					file)
			}
			if err != nil {
				return fmt.Errorf("reading the secrets of the first start: %w", err)
			}
			if _, err := c.out.Write(text); err != nil {
				return fmt.Errorf("printing the secrets of the first start: %w", err)
			}
			if !remove {
				return nil
			}
			if err := os.Remove(file); err != nil {
				return fmt.Errorf("removing the secrets of the first start: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&remove, "remove", false, "remove the file once it was printed")
	return cmd
}
