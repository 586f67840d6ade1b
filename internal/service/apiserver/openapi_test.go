// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/apiserver"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// object is a JSON object.
type object = map[string]any

// description is /openapi.json.
type description struct {
	t    *testing.T
	root object
}

func (a *api) description() description {
	a.t.Helper()
	return description{a.t, a.get("/openapi.json").want(200).body}
}

// at follows names from the root; nil where there is nothing.
func (d description) at(names ...string) any {
	var v any = d.root
	for _, name := range names {
		o, _ := v.(object)
		v = o[name]
	}
	return v
}

// resolve follows a reference.
func (d description) resolve(v any) object {
	d.t.Helper()
	o, _ := v.(object)
	if ref, ok := o["$ref"].(string); ok {
		found, _ := d.at(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...).(object)
		if found == nil {
			d.t.Fatalf("%s leads nowhere", ref)
		}
		return found
	}
	return o
}

// violations returns where a value violates its schema. It implements the keywords that the
// description uses.
func (d description) violations(where string, of any, v any) []string {
	s := d.resolve(of)
	if any, ok := s["anyOf"].([]any); ok {
		var all []string
		for _, one := range any {
			problems := d.violations(where, one, v)
			if len(problems) == 0 {
				return nil
			}
			all = append(all, problems...)
		}
		return all
	}
	if kind := jsonType(v); s["type"] != nil && !slices.Contains(stringList(s["type"]), kind) {
		return []string{fmt.Sprintf("%s is %s, not %v", where, kind, s["type"])}
	}
	if allowed, ok := s["enum"].([]any); ok && !slices.Contains(allowed, v) {
		return []string{fmt.Sprintf("%s is %v, not one of %v", where, v, allowed)}
	}
	var all []string
	switch v := v.(type) {
	case []any:
		for i, item := range v {
			all = append(all, d.violations(fmt.Sprintf("%s[%d]", where, i), s["items"], item)...)
		}
	case object:
		properties, _ := s["properties"].(object)
		for name, value := range v {
			switch {
			case properties[name] != nil:
				all = append(all, d.violations(where+"."+name, properties[name], value)...)
			case s["additionalProperties"] == false:
				all = append(all, where+"."+name+" is not described")
			}
		}
		for _, name := range stringList(s["required"]) {
			if _, there := v[name]; !there {
				all = append(all, where+"."+name+" is missing")
			}
		}
	}
	return all
}

func jsonType(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case float64:
		if v == float64(int64(v)) {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

// stringList returns the strings of v, a string or a list.
func stringList(v any) []string {
	if one, ok := v.(string); ok {
		return []string{one}
	}
	var all []string
	list, _ := v.([]any)
	for _, one := range list {
		all = append(all, fmt.Sprint(one))
	}
	return all
}

// TestOpenAPI_HasAcceptedFields sends every field and parameter that is described
// anywhere to every operation: those that are described for it are known there, and the others are
// not.
func TestOpenAPI_HasAcceptedFields(t *testing.T) {
	t.Parallel()
	a := newAPI(t, admitParts, func(o *apiserver.Options) { o.SessionEnder, o.Limits.Burst = &sessionEnder{}, 10_000 })
	d := a.description()
	o := a.operatorWith(a.admin, "{}")
	ids := map[string]string{"/kubernetes_operators": o,
		"/api_keys":    into[account.APIKey](a.do("POST", "/api_keys", a.admin, "{}").want(201)).ID,
		"/credentials": into[account.Authtoken](a.do("POST", "/credentials", a.admin, "{}").want(201)).ID}
	ids["/clusters"] = a.do("POST", "/clusters", a.admin, clusterBody(t, "prod", "k1")).want(201).body["id"].(string)
	for kind, id := range a.backendOfEachKind() {
		ids["/backends/"+string(kind)] = id
	}
	ids["/endpoints"] = a.cloud("http://cloud.demo", "")
	ids["/app/users"], ids["/app/sessions"] = a.login("alice")
	fields := object{"url": 7, "id": 7, "token": 7}
	parameters := map[string]bool{"id": true, "x": true}
	for name, p := range d.at("components", "parameters").(object) {
		if p.(object)["in"] == "query" {
			parameters[name] = true
		}
	}
	d.eachOperation(func(_, _ string, op object) { maps.Copy(fields, d.bodyFields(op)) })
	all := object{}
	for name := range fields {
		all[name] = 7 // no field is a number: one that is known tells its type
	}
	text, err := json.Marshal(all)
	storetest.Must(t, err)
	d.eachOperation(func(method, pattern string, op object) {
		path := pattern
		for at, id := range ids {
			if strings.HasPrefix(pattern, at) {
				path = strings.ReplaceAll(pattern, "{id}", id)
			}
		}
		var described []string
		for _, p := range op["parameters"].([]any) {
			described = append(described, fmt.Sprint(d.resolve(p)["name"]))
		}
		for name := range parameters {
			rules := a.do(method, path+"?"+name+"=%00", a.admin, "").rules()
			if known := rules[name] != "unknown query parameter"; known != slices.Contains(described, name) {
				t.Errorf("%s %s: parameter %s is known: %t, described: %v", method, pattern, name, known, described)
			}
		}
		body := d.bodyFields(op)
		if op["requestBody"] == nil {
			return
		}
		rules := a.do(method, path, a.admin, string(text)).want(400, account.CodeInvalid).rules()
		for name := range fields {
			_, described := body[name]
			if known := rules[name] != "unknown field"; known != described {
				t.Errorf("%s %s: field %s is known: %t, described: %t", method, pattern, name, known, described)
			}
		}
	})
}

func (d description) eachOperation(do func(method, pattern string, op object)) {
	for pattern, methods := range d.at("paths").(object) {
		for method, op := range methods.(object) {
			if o, ok := op.(object); ok {
				do(strings.ToUpper(method), pattern, o)
			}
		}
	}
}

// bodyFields are the fields of an operation's body.
func (d description) bodyFields(op object) object {
	media, _ := d.resolve(op["requestBody"])["content"].(object)
	json, _ := media["application/json"].(object)
	properties, _ := d.resolve(json["schema"])["properties"].(object)
	return properties
}

func TestOpenAPI_MatchesDocs(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	d := a.description()
	storetest.Equal(t, "version", d.root["openapi"], any("3.1.0"))
	storetest.Equal(t, "server", d.at("servers").([]any)[0].(object)["url"], any(base))
	codes := stringList(d.at("components", "schemas", "ErrorBody", "properties", "error_code", "enum"))
	for _, info := range account.Codes() {
		ours := strings.HasPrefix(string(info.Code), "ERR_FL_1")
		if slices.Contains(codes, string(info.Code)) != ours {
			t.Errorf("code %s is described: %t", info.Code, !ours)
		}
		if text := fmt.Sprint(d.at("components", "responses", fmt.Sprint(info.Status), "description")); ours &&
			!strings.Contains(text, string(info.Code)) {
			t.Errorf("status %d does not name %s: %s", info.Status, info.Code, text)
		}
	}
	page, err := os.ReadFile("../../../docs/reference/api/README.md")
	storetest.Must(t, err)
	rows := regexp.MustCompile("(?m)^\\| `(/[a-z_./{}]+)` \\| ([A-Z, ]+) \\|").FindAllStringSubmatch(string(page), -1)
	documented := map[string]string{}
	for _, row := range rows {
		documented[row[1]] = row[2]
	}
	offered := map[string]string{}
	d.eachOperation(func(method, pattern string, _ object) {
		all := append(strings.FieldsFunc(offered[pattern], func(r rune) bool { return r == ',' || r == ' ' }), method)
		slices.SortFunc(all, func(x, y string) int {
			return slices.Index(methodOrder, x) - slices.Index(methodOrder, y)
		})
		offered[pattern] = strings.Join(all, ", ")
	})
	if !maps.Equal(documented, offered) {
		t.Errorf("docs/reference/api has %v\nthe API %v", documented, offered)
	}
}

var methodOrder = []string{"GET", "POST", "PATCH", "DELETE"}

func TestOpenAPI_ServedToEveryKey(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for _, scope := range account.Scopes() {
		a.do("GET", "/openapi.json", a.key(a.AccountID, scope), "").want(200)
	}
	a.do("GET", "/openapi.json", "", "").want(401)
	a.get("/openapi.json?x=1").want(400)
	a.Clock.Step(time.Hour)
	storetest.Equal(t, "again", a.get("/openapi.json").text, a.get("/openapi.json").text)
}
