// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/fairlead-dev/fairlead/internal/account/resource"
	"github.com/fairlead-dev/fairlead/internal/cli"
)

// field is a field that a flag sets. Its path has a dot where the field is nested in an object.
type field struct {
	resource.Field
	path string
}

// flagFields returns the fields that flags set. within is the path of the object that has them.
func flagFields(all []resource.Field, within string) (found []field) {
	for _, f := range all {
		f.Flag = cmp.Or(f.Flag, strings.ReplaceAll(f.Name, "_", "-"))
		if f.Help != "" {
			found = append(found, field{f, within + f.Name})
		}
		found = append(found, flagFields(f.Fields, within+f.Name+".")...)
	}
	return found
}

// many reports whether the flag may be repeated.
func (f field) many() bool { return f.Type == resource.ListOf || f.Type == resource.MapOf }

// fieldFlags reads fields from a file and from flags, which override the file.
type fieldFlags struct {
	console console
	file    string
	cmd     *cobra.Command
}

func (f *fieldFlags) add(cmd *cobra.Command, fields []resource.Field, create bool) {
	f.cmd = cmd
	for _, one := range flagFields(fields, "") {
		switch {
		case !create && (one.AtCreation || one.Only == http.MethodPost):
		case one.many():
			cmd.Flags().StringArray(one.Flag, nil, one.Help)
		case one.Type == resource.Bool:
			cmd.Flags().Bool(one.Flag, false, one.Help)
		case one.Type == resource.Number:
			cmd.Flags().Int(one.Flag, 0, one.Help)
		default:
			cmd.Flags().String(one.Flag, "", one.Help)
		}
		if values := one.Choices(); len(values) > 0 && cmd.Flags().Lookup(one.Flag) != nil {
			cli.CompleteValues(cmd, one.Flag, values...)
		}
	}
	cmd.Flags().StringVarP(&f.file, "file", "f", "",
		"`FILE` with the fields as the API names them, JSON or YAML; - for standard input; flags come on top")
}

// read returns the given fields in the form of the API.
func (f *fieldFlags) read(fields []resource.Field) (map[string]any, error) {
	out, err := f.readFile()
	if err != nil {
		return nil, err
	}
	for _, one := range flagFields(fields, "") {
		if !f.cmd.Flags().Changed(one.Flag) {
			continue
		}
		value, err := f.value(one)
		if err != nil {
			return nil, err
		}
		if err := setField(out, one, value); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (f *fieldFlags) value(one field) (any, error) {
	flags := f.cmd.Flags()
	switch one.Type {
	case resource.Bool:
		return flags.GetBool(one.Flag)
	case resource.Number:
		return flags.GetInt(one.Flag)
	case resource.ListOf, resource.MapOf:
		list, err := flags.GetStringArray(one.Flag)
		if err != nil || strings.Join(list, "") == "" {
			return nil, err // the default
		}
		return listValue(one, list)
	}
	text, err := flags.GetString(one.Flag)
	switch {
	case err == nil && one.FromFile:
		return readText("--"+one.Flag, text)
	case err == nil && one.Type == resource.Time:
		return expiry("--"+one.Flag, text, time.Now())
	}
	return text, err
}

// listValue converts the values of a repeated flag to the form of the API.
func listValue(one field, list []string) (any, error) {
	isList, isNumber := one.Type == resource.ListOf, one.Items.Type == resource.Number
	if isList && !isNumber {
		return list, nil
	}
	numbers, byName := []int{}, map[string]any{}
	for _, item := range list {
		name, value, ok := strings.Cut(item, "=")
		if isList {
			name, value, ok = "number", item, true
		}
		if !ok || name == "" {
			return nil, cli.Usagef("--%s %q: must be NAME=VALUE", one.Flag, item)
		}
		if _, twice := byName[name]; twice && !isList {
			return nil, cli.Usagef("--%s %q: %s is given twice", one.Flag, item, name)
		}
		byName[name] = value
		if !isNumber {
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil {
			return nil, cli.Usagef("--%s %q: must be a whole number", one.Flag, item)
		}
		byName[name], numbers = n, append(numbers, n)
	}
	if isList {
		return numbers, nil
	}
	return byName, nil
}

// readText reads a text of at most maxFile bytes.
func readText(flag, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", cli.Usagef("%s: %v", flag, err)
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("reading %s: %w", path, err)
	case len(raw) > maxFile:
		return "", cli.Usagef("%s %q: has more than 1 MiB", flag, path)
	}
	return string(raw), nil
}

// expiry reads a duration from now on, a point in time, or never, which is nil.
func expiry(flag, text string, now time.Time) (any, error) {
	if text == "never" {
		return nil, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(d).UTC().Format(time.RFC3339), nil
	}
	if _, err := time.Parse(time.RFC3339, text); err != nil {
		return nil, cli.Usagef("%s %q: must be a duration such as 720h, a time such as 2027-01-31T00:00:00Z, or never",
			flag,
			text)
	}
	return text, nil
}

// setField sets a field, in the object that its path names.
func setField(out map[string]any, one field, value any) error {
	outer, name, nested := strings.Cut(one.path, ".")
	if !nested {
		out[one.path] = value
		return nil
	}
	object, ok := out[outer].(map[string]any)
	if out[outer] != nil && !ok {
		return cli.Usagef("--%s: %s in the file is no object", one.Flag, outer)
	}
	if object == nil {
		object = map[string]any{}
		out[outer] = object
	}
	object[name] = value
	return nil
}

const maxFile = 1 << 20

func (f *fieldFlags) readFile() (map[string]any, error) {
	out := map[string]any{}
	if f.file == "" {
		return out, nil
	}
	from := f.console.in
	if f.file != "-" {
		opened, err := os.Open(f.file)
		if err != nil {
			return nil, cli.Usagef("--file: %v", err)
		}
		defer func() { _ = opened.Close() }()
		from = opened
	}
	raw, err := io.ReadAll(io.LimitReader(from, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the fields: %w", err)
	case len(raw) > maxFile:
		return nil, cli.Usagef("--file %q: has more than 1 MiB", f.file)
	}
	if err := yaml.Unmarshal(raw, &out); err != nil || out == nil {
		return nil, cli.Usagef("--file %q: must hold one JSON or YAML object with the fields", f.file)
	}
	return out, nil
}
