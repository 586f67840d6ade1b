// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"crypto/fips140"
	"encoding/json"
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/version"
)

// build describes the running program, as `version -o json` prints it.
type build struct {
	Program   string `json:"program"`
	Version   string `json:"version"`
	Revision  string `json:"revision"`
	GoVersion string `json:"go_version"`
	Platform  string `json:"platform"` // OS/ARCH
	FIPS140   bool   `json:"fips140"`
}

func currentBuild(root *cobra.Command) build {
	return build{Program: root.Name(), Version: version.String(), Revision: version.Revision(),
		GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, FIPS140: fips140.Enabled()}
}

// String returns the line that --version prints.
func (b build) String() string {
	mode := ""
	if b.FIPS140 {
		mode = ", FIPS 140-3"
	}
	return fmt.Sprintf("%s %s (revision %s, %s, %s%s)\n",
		b.Program, b.Version, b.Revision, b.GoVersion, b.Platform, mode)
}

func newVersion(b build) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version",
		Example: fmt.Sprintf("  %[1]s version\n  %[1]s version -o json", b.Program),
		Args:    NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch format {
			case "text":
				_, err := fmt.Fprint(cmd.OutOrStdout(), b)
				return err
			case "json":
				return WriteJSON(cmd.OutOrStdout(), b)
			}
			return Usagef("--output %q: must be text or json", format)
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "text", "`FORMAT` of the answer: text or json")
	CompleteValues(cmd, "output", "text", "json")
	return cmd
}

// WriteJSON writes a value as indented JSON.
func WriteJSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(value)
}
