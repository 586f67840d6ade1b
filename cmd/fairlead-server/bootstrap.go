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
		Long: `Print the secrets of the first start, and how to use them: an API key for a person, which may do
everything, and an authtoken for agents, which may bind URLs and no more. A server without a terminal
writes them to DATA-DIR/bootstrap.txt, readable for its user only, where they stay until --remove. In a
container, this command is the way to read that file.

Clusters need neither of them: they prove themselves with tokens of their ServiceAccounts, or with an API
key and an authtoken of their own. What is printed has the commands for both.`,
		Example: `  fairlead-server bootstrap --remove
  kubectl exec deployment/fairlead-server -- /fairlead-server bootstrap`,
		Args: arguments(),
		RunE: func(*cobra.Command, []string) error {
			file := filepath.Join(at.dataDir, service.BootstrapFileName)
			text, err := os.ReadFile(file)
			if errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf(
					"there is no %s: it was removed, or the first start printed its secrets elsewhere; make new ones "+
						"with `fairlead-server api-key create` and `fairlead-server authtoken create`", file)
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
