// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// isPlugin reports whether the program was started by the name of kubectl's plugin. krew installs it
// by this name alone, so that there is no command fairlead.
func isPlugin(program string) bool {
	return strings.TrimSuffix(filepath.Base(program), ".exe") == "kubectl-fairlead"
}

// ownCommand is a command line of the program in a text of its help.
var ownCommand = regexp.MustCompile("(?m)(^ +|`|<\\()fairlead ")

// describePlugin makes the help of cmd and of all commands below it name `kubectl fairlead`.
func describePlugin(cmd *cobra.Command) {
	if !cmd.HasParent() {
		cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl fairlead"}
	}
	cmd.Long = ownCommand.ReplaceAllString(cmd.Long, "${1}kubectl fairlead ")
	cmd.Example = ownCommand.ReplaceAllString(cmd.Example, "${1}kubectl fairlead ")
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		f.Usage = ownCommand.ReplaceAllString(f.Usage, "${1}kubectl fairlead ")
	})
	for _, sub := range cmd.Commands() {
		describePlugin(sub)
	}
}
