// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead-dev/fairlead/internal/account/resource"
	"github.com/fairlead-dev/fairlead/internal/agent/screen"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/printable"
)

// printAll prints the objects of a list of the API.
func (a *apiCall) printAll(ctx context.Context, api *apiclient.Client, r resource.Resource, query url.Values) error {
	all, err := api.ListObjects(ctx, r.Path, r.List.Field, query)
	if err != nil {
		return err
	}
	return a.printList(r, all)
}

// printList prints objects as rows below a heading, or as a list.
func (a *apiCall) printList(r resource.Resource, all []json.RawMessage) error {
	if !a.isTable() {
		return a.printObjects(all)
	}
	columns := a.columns(r)
	rows := make([][]string, 1, len(all)+1)
	for _, c := range columns {
		rows[0] = append(rows[0], c.Heading)
	}
	for _, raw := range all {
		cells, err := row(r, columns, raw)
		if err != nil {
			return err
		}
		rows = append(rows, cells)
	}
	width := 0
	if a.format != "wide" {
		width = cli.TerminalColumns(a.console.out, a.console.env)
	}
	_, err := io.WriteString(a.console.out, printable.Table(rows, width))
	return err
}

// printObjects prints objects as a list, which is .items of a template, or the name of each.
func (a *apiCall) printObjects(all []json.RawMessage) error {
	if a.format == "name" {
		for _, raw := range all {
			if err := printName(a.console.out, raw); err != nil {
				return err
			}
		}
		return nil
	}
	joined, err := json.Marshal(all)
	if a.template != nil {
		joined, err = json.Marshal(map[string]any{"items": all})
	}
	if err != nil {
		return fmt.Errorf("encoding the list: %w", err)
	}
	return a.printRaw(joined)
}

// row returns the cells of an object in these columns.
func row(r resource.Resource, columns []resource.Column, raw json.RawMessage) ([]string, error) {
	var o map[string]any
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, fmt.Errorf("reading %s: %w", article(r.Noun), err)
	}
	cells := make([]string, len(columns))
	for i, c := range columns {
		var v any = o
		for name := range strings.SplitSeq(c.Field, ".") {
			inner, _ := v.(map[string]any)
			v = inner[name]
		}
		cells[i] = fieldCell(c.Field, v)
	}
	return cells, nil
}

// fieldCell formats the value of the field with this path. Times are truncated to seconds to fit
// beside other columns.
func fieldCell(path string, v any) string {
	name := path[strings.LastIndexByte(path, '.')+1:]
	if text, ok := v.(string); ok && isTime(name) {
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			return at.UTC().Format(time.RFC3339)
		}
	}
	return cell(v)
}

// isTime reports whether the API's fields of this name are points in time.
func isTime(name string) bool {
	switch name {
	case "last_active", "last_login", "first_accessed", "last_accessed", "offline_since":
		return true
	}
	return strings.HasSuffix(name, "_at")
}

// cell formats a value in one line.
func cell(v any) string {
	switch v := v.(type) {
	case nil:
		return "-"
	case string:
		if v == "" {
			return "-"
		}
		return screen.Escape(v)
	case []any:
		texts := make([]string, len(v))
		for i, one := range v {
			texts[i] = cell(one)
		}
		if len(texts) == 0 {
			return "-"
		}
		return strings.Join(texts, ",")
	case map[string]any:
		if text, ok := clusterCell(v); ok {
			return text
		}
		if id, ok := v["id"].(string); ok {
			return cell(id)
		}
		if object, ok := objectCell(v); ok {
			return object
		}
		pairs := []string{}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			pairs = append(pairs, screen.Escape(name)+"="+fieldCell(name, v[name]))
		}
		if len(pairs) == 0 {
			return "-"
		}
		return strings.Join(pairs, ",")
	}
	return fmt.Sprint(v)
}

// objectCell formats the owner of an endpoint: kind, namespace and name of a Kubernetes object.
func objectCell(v map[string]any) (text string, ok bool) {
	kind, _ := v["kind"].(string)
	namespace, _ := v["namespace"].(string)
	name, _ := v["name"].(string)
	if kind == "" || namespace == "" || name == "" {
		return "", false
	}
	return screen.Escape(kind + " " + namespace + "/" + name), true
}

// exportCell formats the export of a Service: its type, ports, and whether it is ready.
func exportCell(v map[string]any) string {
	parts := []string{cell(v["type"])}
	ports, _ := v["ports"].([]any)
	for _, one := range ports {
		port, _ := one.(map[string]any)
		text := cell(port["port"]) + "/" + cell(port["protocol"])
		if name, _ := port["name"].(string); name != "" {
			text = cell(name) + " " + text
		}
		parts = append(parts, text)
	}
	if ready, _ := v["ready"].(bool); ready {
		return strings.Join(append(parts, "ready"), ", ")
	}
	return strings.Join(append(parts, "not ready"), ", ")
}

// print prints the object that a call has returned; as a table it has a line for each field. It
// returns the error of the call.
func (a *apiCall) print(raw json.RawMessage, err error) error {
	if err != nil {
		return err
	}
	if !a.isTable() {
		return a.printRaw(raw)
	}
	var o map[string]any
	node, err := blockStyle(raw)
	if err == nil {
		err = json.Unmarshal(raw, &o)
	}
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	var rows [][]string
	for i := 0; i < len(node.Content); i += 2 { // in the order of the API
		name := node.Content[i].Value
		if lines := clusterLines(name, o[name]); len(lines) > 0 {
			rows = append(rows, lines...)
			continue
		}
		value := fieldCell(name, o[name])
		switch inner, _ := o[name].(map[string]any); {
		case inner == nil:
		case name == "owner":
			value += " of cluster " + cell(inner["cluster"]) + ", uid " + cell(inner["uid"])
		case name == "service_export":
			value = exportCell(inner)
		}
		rows = append(rows, []string{screen.Escape(name), value})
	}
	_, err = io.WriteString(a.console.out, printable.Table(rows, 0))
	return err
}

// printSecret answers the creation of a credential. Only the secret goes to standard output, for
// scripts.
func (a *apiCall) printSecret(r resource.Resource, made json.RawMessage) error {
	var o struct{ ID, Token string }
	if err := json.Unmarshal(made, &o); err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	id := screen.Escape(o.ID)
	_, _ = fmt.Fprintf(a.console.err, "%s %s created. Its secret is shown only this once:\n", r.Noun, id)
	_, err := fmt.Fprintln(a.console.out, o.Token)
	return err
}

// printRaw prints an answer by a template, as its name, or as JSON or YAML with the fields in the
// order of the API.
func (a *apiCall) printRaw(raw json.RawMessage) error {
	switch {
	case a.template != nil:
		return a.printTemplate(a.console.out, raw)
	case a.format == "name":
		return printName(a.console.out, raw)
	case a.format == "json":
		var out bytes.Buffer
		if err := json.Indent(&out, raw, "", "  "); err != nil {
			return fmt.Errorf("reading the answer: %w", err)
		}
		_, err := fmt.Fprintln(a.console.out, out.String())
		return err
	}
	return printYAML(a.console.out, raw)
}

func printYAML(w io.Writer, raw json.RawMessage) error {
	node, err := blockStyle(raw)
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(node); err != nil {
		return err
	}
	return enc.Close()
}

// blockStyle parses JSON, which is YAML, into a node that is encoded in block style.
func blockStyle(raw json.RawMessage) (*yaml.Node, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(raw, &document); err != nil {
		return nil, err
	}
	clearStyle(&document)
	return document.Content[0], nil
}

func clearStyle(n *yaml.Node) {
	n.Style = 0
	for _, inner := range n.Content {
		clearStyle(inner)
	}
}

// clusterCell formats what a cluster consists of in a list: its keys by kid, and a subject by role.
func clusterCell(v map[string]any) (text string, ok bool) {
	if keys, isSet := v["keys"].([]any); isSet {
		kids := make([]string, len(keys))
		for i, one := range keys {
			key, _ := one.(map[string]any)
			kids[i] = cell(key["kid"])
		}
		return strings.Join(kids, ","), true
	}
	if v["service_account"] != nil && v["role"] != nil {
		return cell(v["role"]), true
	}
	return "", false
}

// clusterLines formats the keys and the subjects of a cluster, one in each line; nil for other
// fields.
func clusterLines(name string, v any) (rows [][]string) {
	switch name {
	case "jwks":
		set, _ := v.(map[string]any)
		keys, _ := set["keys"].([]any)
		for _, one := range keys {
			key, _ := one.(map[string]any)
			rows = append(rows, []string{"key", cell(key["kid"]) + " (" + cell(key["alg"]) + ")"})
		}
	case "subjects":
		subjects, _ := v.([]any)
		for _, one := range subjects {
			s, _ := one.(map[string]any)
			rows = append(rows, []string{"subject", cell(s["role"]) + "=" + cell(s["namespace"]) + "/" +
				cell(s["service_account"]) + subjectFacts(s)})
		}
	}
	return rows
}

// subjectFacts formats the rules of a subject and the UID that its tokens must have.
func subjectFacts(s map[string]any) string {
	var b strings.Builder
	if acl, _ := s["acl"].([]any); len(acl) > 0 {
		b.WriteString(", rules " + cell(acl))
	}
	if uid, _ := s["uid"].(string); uid != "" {
		b.WriteString(", uid " + screen.Escape(uid))
	}
	return b.String()
}
