// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/printable"
)

// output is the format that a command answers in.
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

// list prints rows below a heading, or value as JSON.
func (o *output) list(w io.Writer, value any, heading string, rows [][]string) error {
	if o.format == "json" {
		return printJSON(w, value)
	}
	all := append([][]string{strings.Split(heading, "\t")}, rows...)
	_, err := io.WriteString(w, printable.Table(all, 0))
	return err
}

func printJSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(value)
}

// made answers the creation of a credential. The secret alone goes to standard output, so that a
// script can take it; what a person wants to know about it goes to standard error.
func (o *output) made(c console, value any, secret, about string) error {
	if o.format == "json" {
		return printJSON(c.out, value)
	}
	_, _ = fmt.Fprintln(c.err, about+" It is shown only this once:")
	_, err := fmt.Fprintln(c.out, secret)
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
