// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
	"github.com/fairlead-dev/fairlead/internal/agent/screen"
	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/printable"
)

const formatJSONPath = "jsonpath="

// output is how an answer is printed.
type output struct {
	format       string
	templateText string
	template     *template.Template // template is that of jsonpath or --template, and nil otherwise.
}

func (o *output) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.format, "output", "o", "table",
		"`FORMAT` of the answer: table, wide, name, json, yaml or "+formatJSONPath+"TEMPLATE")
	cmd.Flags().StringVar(&o.templateText, "template", "", "`TEXT` of a template of Go that formats the answer")
	cli.CompleteValues(cmd, "output", "table", "wide", "name", "json", "yaml", formatJSONPath)
}

// parseFlags checks the flags.
func (o *output) parseFlags() (err error) {
	text, isPath := strings.CutPrefix(o.format, formatJSONPath)
	switch {
	case o.templateText != "" && o.format != "table":
		return cli.Usagef("--template and --output %s are two formats: give one of them", o.format)
	case o.templateText != "":
		o.format = "template"
		o.template, err = template.New("template").Parse(o.templateText)
	case isPath:
		o.template, err = parseJSONPath(text)
	case !slices.Contains([]string{"table", "wide", "name", "json", "yaml"}, o.format):
		return cli.Usagef("--output %q: must be table, wide, name, json, yaml or %sTEMPLATE", o.format, formatJSONPath)
	}
	if err != nil {
		return cli.Usagef("the template of the answer: %v", err)
	}
	return nil
}

// isTable reports whether the answer is printed as a table.
func (o *output) isTable() bool { return o.format == "table" || o.format == "wide" }

// columns returns the columns of a table.
func (o *output) columns(r resource.Resource) []resource.Column {
	if o.format == "wide" {
		return slices.Concat(r.Columns, r.Wide)
	}
	return r.Columns
}

// printTemplate prints an answer by the template.
func (o *output) printTemplate(w io.Writer, raw json.RawMessage) error {
	var answer any
	numbers := json.NewDecoder(bytes.NewReader(raw))
	numbers.UseNumber()
	if err := numbers.Decode(&answer); err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	var text strings.Builder
	if err := o.template.Execute(&text, answer); err != nil {
		return fmt.Errorf("formatting the answer: %w", err)
	}
	_, err := io.WriteString(w, printable.EscapeInvisible(text.String()))
	return err
}

// printName prints the name of an object: its kind and ID, else its URL.
func printName(w io.Writer, raw json.RawMessage) error {
	var o struct{ ID, URL string }
	if err := json.Unmarshal(raw, &o); err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	name := o.URL
	if o.ID != "" {
		name = resource.NameOf(o.ID)
	}
	_, err := fmt.Fprintln(w, screen.Escape(name))
	return err
}

// objectError is an error that is reported as JSON, in the form of the API's errors.
type objectError struct{ error }

func (e *objectError) Unwrap() error { return e.error }

// asObject returns the error in the form that --output asks for.
func (o *output) asObject(err error) error {
	if err == nil || o.format != "json" {
		return err
	}
	return &objectError{err}
}

// body returns the error of the API as it came, and others with what is known.
func (e *objectError) body() account.ErrorBody {
	body := account.ErrorBody{Msg: e.Error()}
	if answer, ok := errors.AsType[*account.Error](e.error); ok {
		body.Code, body.Status, body.Details, body.Errors = answer.Code, answer.Status, answer.Details, answer.Fields
		if answer.Status != 0 {
			body.Msg = answer.Error()
		}
	}
	return body
}
