// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// FlagError returns the UsageError for an error of parsing the flags of cmd: it names what to give
// instead, or keeps the words of an error of an unknown kind.
func FlagError(cmd *cobra.Command, err error) error {
	if missing, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if near := closestFlag(cmd.Flags(), missing.GetSpecifiedName()); near != "" {
			return Usagef("%s; did you mean --%s?", err, near)
		}
		return Usagef("%s; run `%s --help` for the flags", err, cmd.CommandPath())
	}
	return Usagef("%s; run `%s --help` for the flags", valueProblem(err), cmd.CommandPath())
}

// closestFlag returns the flag whose name needs the fewest changes to become name, at most two; ""
// when there is none.
func closestFlag(flags *pflag.FlagSet, name string) (near string) {
	if len(name) < 3 {
		return ""
	}
	least := 3
	flags.VisitAll(func(f *pflag.Flag) {
		if d := editDistance(name, f.Name); d < least && !f.Hidden {
			near, least = f.Name, d
		}
	})
	return near
}

// editDistance returns the number of letters to insert, delete, replace or swap with their
// neighbour between a and b (optimal string alignment).
func editDistance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

// valueProblem describes a value that a flag does not accept.
func valueProblem(err error) string {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err.Error()
	}
	var rule string
	var number *strconv.NumError
	switch kind := invalid.GetFlag().Value.Type(); {
	case errors.As(err, &number) && errors.Is(number.Err, strconv.ErrRange):
		rule = "the number is too large, or less than it may be"
	case strings.HasPrefix(kind, "uint"):
		rule = "give a whole number of 0 or more"
	case strings.HasPrefix(kind, "int"):
		rule = "give a whole number"
	case strings.HasPrefix(kind, "float"):
		rule = "give a number, such as 0.5"
	case kind == "bool":
		rule = "give true or false"
	case kind == "duration":
		rule = "give a duration, such as 30s, 10m or 2h"
	default:
		return err.Error()
	}
	return fmt.Sprintf("--%s %q: %s", invalid.GetFlag().Name, invalid.GetValue(), rule)
}

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
