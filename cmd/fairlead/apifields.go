// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/fairlead-dev/fairlead/internal/cli"
)

// kind is the type of a field's flag.
type kind int

const (
	kindText kind = iota
	kindList
	kindExpiry
	kindNumber
	kindNumbers
	kindPairs   // name=value, many
	kindWeights // name=number, many
	kindFlag
	kindFile // a text out of a file
)

// field is a field that a flag sets. Its path has a dot where the field is nested in an object.
type field struct {
	flag, path, help string
	kind             kind
	create           bool // only at the creation
}

// fieldFlags reads fields from a file and from flags, which override the file.
type fieldFlags struct {
	console console
	file    string
	cmd     *cobra.Command
}

func (f *fieldFlags) add(cmd *cobra.Command, fields []field, create bool) {
	f.cmd = cmd
	for _, one := range fields {
		switch {
		case one.create && !create:
		case one.kind.many():
			cmd.Flags().StringArray(one.flag, nil, one.help)
		case one.kind == kindFlag:
			cmd.Flags().Bool(one.flag, false, one.help)
		case one.kind == kindNumber:
			cmd.Flags().Int(one.flag, 0, one.help)
		default:
			cmd.Flags().String(one.flag, "", one.help)
		}
	}
	cmd.Flags().StringVarP(&f.file, "file", "f", "",
		"`FILE` with the fields as the API names them, JSON or YAML; - for standard input; flags come on top")
}

// read returns the given fields in the form of the API.
func (f *fieldFlags) read(fields []field) (map[string]any, error) {
	out, err := f.readFile()
	if err != nil {
		return nil, err
	}
	for _, one := range fields {
		if !f.cmd.Flags().Changed(one.flag) {
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

func (k kind) many() bool {
	return k == kindList || k == kindNumbers || k == kindPairs || k == kindWeights
}

func (f *fieldFlags) value(one field) (any, error) {
	flags := f.cmd.Flags()
	switch one.kind {
	case kindFlag:
		return flags.GetBool(one.flag)
	case kindNumber:
		return flags.GetInt(one.flag)
	case kindList, kindNumbers, kindPairs, kindWeights:
		list, err := flags.GetStringArray(one.flag)
		if err != nil || strings.Join(list, "") == "" {
			return nil, err // the default
		}
		return listValue(one, list)
	}
	text, err := flags.GetString(one.flag)
	switch {
	case err != nil || one.kind == kindText:
		return text, err
	case one.kind == kindFile:
		return readText("--"+one.flag, text)
	}
	return expiry("--"+one.flag, text, time.Now())
}

// listValue converts the values of a repeated flag to the form of the API.
func listValue(one field, list []string) (any, error) {
	if one.kind == kindList {
		return list, nil
	}
	numbers, byName := []int{}, map[string]any{}
	for _, item := range list {
		name, value, ok := strings.Cut(item, "=")
		if one.kind == kindNumbers {
			name, value, ok = "number", item, true
		}
		if !ok || name == "" {
			return nil, cli.Usagef("--%s %q: must be NAME=VALUE", one.flag, item)
		}
		if _, twice := byName[name]; twice && one.kind != kindNumbers {
			return nil, cli.Usagef("--%s %q: %s is given twice", one.flag, item, name)
		}
		byName[name] = value
		if one.kind == kindPairs {
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil {
			return nil, cli.Usagef("--%s %q: must be a whole number", one.flag, item)
		}
		byName[name], numbers = n, append(numbers, n)
	}
	if one.kind == kindNumbers {
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
		return cli.Usagef("--%s: %s in the file is no object", one.flag, outer)
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
