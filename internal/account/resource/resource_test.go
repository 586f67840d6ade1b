// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
)

// TestTable_NamesAreUnique requires that paths, ID prefixes, routes and the IDs of operations each
// stand once.
func TestTable_NamesAreUnique(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	once := func(kind, name string) {
		if seen[kind+" "+name] {
			t.Errorf("%s %q stands twice", kind, name)
		}
		seen[kind+" "+name] = true
	}
	for _, r := range resource.All() {
		once("path", r.Path)
		if r.IDPrefix != "" {
			once("ID prefix", r.IDPrefix)
		}
		for _, op := range r.Operations {
			once("route", op.Method+" "+op.Pattern)
			once("operation", op.ID)
			if !strings.HasPrefix(op.Pattern, r.Path) {
				t.Errorf("%s %s is not below %s", op.Method, op.Pattern, r.Path)
			}
		}
	}
	if !seen["route POST /tunnel_sessions/{id}/stop"] || !seen["path /backends/http_response"] {
		t.Errorf("the table is incomplete: %v", seen)
	}
}

// TestTable_FieldsAreComplete requires that lists and maps have items, objects fields, and flags
// names of their own.
func TestTable_FieldsAreComplete(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, r := range resource.All() {
		flags := map[string]bool{}
		var check func(within string, all []resource.Field)
		check = func(within string, all []resource.Field) {
			for _, f := range all {
				checked++
				at := within + f.Name
				switch many := f.Type == resource.ListOf || f.Type == resource.MapOf; {
				case f.Name == "":
					t.Errorf("%s has a field without a name", within)
				case many != (f.Items != nil):
					t.Errorf("%s: only lists and maps have items", at)
				case (f.Type == resource.Object) != (f.Fields != nil):
					t.Errorf("%s: only objects have fields", at)
				case f.Type == resource.Number && f.Max == 0:
					t.Errorf("%s: a number needs a limit", at)
				}
				if flag := f.Flag + "|" + f.Name; f.Help != "" {
					if flags[flag] {
						t.Errorf("%s: the flag %q stands twice", at, flag)
					}
					flags[flag] = true
				}
				check(at+".", f.Fields)
			}
		}
		check(r.Path+" ", r.Fields)
		for _, op := range r.Operations {
			check(op.ID+" ", op.Query)
		}
	}
	if checked < 100 {
		t.Errorf("only %d fields were checked", checked)
	}
}

// TestTable_ColumnsAreFields requires that the columns of tables show fields that objects have.
func TestTable_ColumnsAreFields(t *testing.T) {
	t.Parallel()
	for _, r := range resource.All() {
		for _, column := range append(r.Columns, r.Wide...) {
			of := reflect.TypeOf(r.Object)
			for name := range strings.SplitSeq(column.Field, ".") {
				if of.Kind() == reflect.Pointer {
					of = of.Elem()
				}
				if of.Kind() == reflect.Map {
					break
				}
				fields := reflect.VisibleFields(of)
				i := slices.IndexFunc(fields, func(f reflect.StructField) bool {
					field, _, _ := strings.Cut(f.Tag.Get("json"), ",")
					return field == name
				})
				if i < 0 {
					t.Errorf("%s: the column %s shows %s, and %v has no %s", r.Path, column.Heading, column.Field, of,
						name)
					break
				}
				of = fields[i].Type
			}
		}
	}
}

func TestPathOf_FindsObjects(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"ep-06hj":    "/endpoints/ep-06hj",
		"au-06hj":    "/app/users/au-06hj",
		"bkdhr-06hj": "/backends/http_response/bkdhr-06hj",
		"cr-a/b":     "/credentials/cr-a%2Fb",
		"dm-06hj":    "", "": "", "-06hj": "",
	} {
		if got := resource.PathOf(id); got != want {
			t.Errorf("PathOf(%q) = %q, want %q", id, got, want)
		}
	}
	for id, want := range map[string]string{"ep-06hj": "endpoint/ep-06hj", "ak-06hj": "api-key/ak-06hj",
		"bkdhr-06hj": "http-response-backend/bkdhr-06hj", "dm-06hj": "dm-06hj"} {
		if got := resource.NameOf(id); got != want {
			t.Errorf("NameOf(%q) = %q, want %q", id, got, want)
		}
	}
	if got := resource.At(resource.BackendPath(account.BackendStatic)).Noun; got != "static backend" {
		t.Errorf("the noun of static backends is %q", got)
	}
}

// TestOperations_HaveScopes requires that scopes and bodies are those of the method.
func TestOperations_HaveScopes(t *testing.T) {
	t.Parallel()
	bodies := map[string][]string{}
	for _, r := range resource.All() {
		for _, op := range r.Operations {
			if op.Method == "GET" && len(op.Scopes) == 0 || op.Method != "GET" && slices.Contains(op.Scopes, "read") {
				t.Errorf("%s needs one of the scopes %v", op.ID, op.Scopes)
			}
			for _, f := range op.Body {
				bodies[op.ID] = append(bodies[op.ID], f.Name)
			}
		}
	}
	for _, c := range []struct {
		op, field string
		has       bool
	}{
		{"registerOperator", "cluster_uid", true}, {"registerOperator", "id", false},
		{"updateOperator", "cluster_uid", false}, {"updateOperator", "id", true},
		{"stopTunnelSession", "id", false}, {"updateCluster", "add_jwks", true},
	} {
		if got := slices.Contains(bodies[c.op], c.field); got != c.has {
			t.Errorf("the body of %s has %s: %t", c.op, c.field, got)
		}
	}
}
