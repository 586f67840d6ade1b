// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/printable"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// output is the format of a command's answer: table or json.
type output struct{ format string }

func (o *output) addFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.format, "output", "o", "table", "`FORMAT` of the answer: table or json")
	cli.CompleteValues(cmd, "output", "table", "json")
}

func (o *output) check() error {
	if o.format != "table" && o.format != "json" {
		return account.Invalid("--output", o.format, "must be table or json")
	}
	return nil
}

// listCommand describes a command that lists values of the store.
type listCommand struct {
	use            string // "" = list
	short, example string
	args           cobra.PositionalArgs // nil = none
	heading        []string
}

// newList makes a command that prints what list returns as rows below a heading, or as JSON.
func newList[T interface{ row() []string }](c console, at *dataLocation, l listCommand,
	list func(ctx context.Context, st *store.Store, args []string) ([]T, error),
) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use: "list", Short: l.short, Example: l.example, Args: arguments(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.check(); err != nil {
				return err
			}
			return withStore(cmd.Context(), at, func(st *store.Store) error {
				values, err := list(cmd.Context(), st, args)
				switch {
				case err != nil:
					return err
				case out.format == "json":
					return cli.WriteJSON(c.out, values)
				}
				return printTable(c.out, l.heading, convert(values, T.row))
			})
		},
	}
	if l.use != "" {
		cmd.Use, cmd.Args = l.use, l.args
	}
	out.addFlag(cmd)
	return cmd
}

// convert returns f of each value, in order; never nil.
func convert[T, U any](values []T, f func(T) U) []U {
	converted := make([]U, len(values))
	for i, v := range values {
		converted[i] = f(v)
	}
	return converted
}

func printTable(w io.Writer, heading []string, rows [][]string) error {
	_, err := io.WriteString(w, printable.Table(append([][]string{heading}, rows...), 0))
	return err
}

// printSecret answers the creation of a credential. Only the secret goes to standard output, for
// scripts; about, a sentence, goes to standard error.
func (o *output) printSecret(c console, made credentialJSON, about string) error {
	if o.format == "json" {
		return cli.WriteJSON(c.out, made)
	}
	_, _ = fmt.Fprintln(c.err, about+" It is shown only this once:")
	_, err := fmt.Fprintln(c.out, made.Secret)
	return err
}

func date(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }

func dateOrNever(t *time.Time) string {
	if t == nil {
		return "never"
	}
	return date(*t)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
