// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// UsageError is an error of the command line or a setting.
type UsageError struct{ Message string }

// Error returns the message.
func (e *UsageError) Error() string { return e.Message }

// Usagef returns a UsageError with a formatted message.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// NoArguments is the Args of commands without arguments.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return Usagef("%s takes no argument, and got %q", cmd.CommandPath(), args[0])
}

// SubcommandsOnly is the Args of commands that only have subcommands. The error suggests a command
// with a similar name.
func SubcommandsOnly(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return unknownName("command", cmd, args[0])
}

func unknownName(what string, parent *cobra.Command, name string) error {
	parent.SuggestionsMinimumDistance = 2
	if near := parent.SuggestionsFor(name); len(near) > 0 {
		return Usagef("unknown %s %q; did you mean `%s %s`?", what, name, parent.CommandPath(), near[0])
	}
	return Usagef("unknown %s %q; run `%s --help` for those there are", what, name, parent.CommandPath())
}
