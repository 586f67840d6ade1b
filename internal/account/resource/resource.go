// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resource describes the account API once: its resources, their operations, the fields and
// limits of bodies, the query parameters, the types of answers, and the columns of the tables in
// which `fairlead api` shows objects.
//
// internal/service/apiserver joins a handler to each operation and makes the OpenAPI document of
// the table; internal/apiclient, cmd/fairlead and sdk take paths, fields and columns from it.
package resource

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Paths of the resources. Those of backends are BackendPath's.
const (
	Description    = "/openapi.json"
	Events         = "/events"
	Endpoints      = "/endpoints"
	Users          = "/app/users"
	AppSessions    = "/app/sessions"
	Tunnels        = "/tunnels"
	Operators      = "/kubernetes_operators"
	TunnelSessions = "/tunnel_sessions"
	APIKeys        = "/api_keys"
	Credentials    = "/credentials"
	Clusters       = "/clusters"
	ClusterKeys    = "/cluster_keys"
)

// BackendPath returns the path of the backends of a kind.
func BackendPath(kind account.BackendKind) string { return "/backends/" + string(kind) }

// ObjectPath returns the path of the object with the ID in the resource at a path.
func ObjectPath(path, id string) string { return path + "/" + url.PathEscape(id) }

// Resource is a kind of objects of the API.
type Resource struct {
	Path        string
	Noun        string // Noun names one object in sentences.
	IDPrefix    string // IDPrefix is what the objects' IDs begin with, without the hyphen.
	Object      any    // Object is a value of the type of the objects in answers.
	List        List
	Watch       any             // Watch is a value of the type of the lines of a watch; nil for no watch.
	Secret      bool            // Secret reports whether the answer to a creation has a secret.
	Read, Write []account.Scope // A key needs one of them to GET, and for the other methods.
	Fields      []Field         // Fields are those of the bodies that create and update objects.
	Columns     []Column        // Columns are those of the table, which fit into 80 characters.
	Wide        []Column        // Wide are further columns, which -o wide shows.
	Operations  []Operation

	WhileDraining bool // WhileDraining is set where a stopping server still serves writes.
}

// Operation is a method of a route.
type Operation struct {
	Method, Pattern string // Pattern is a path as http.ServeMux takes it, such as /clusters/{id}.
	ID, Summary     string
	Scopes          []account.Scope // A key needs one of them. The scope admin may do everything.
	Query           []Field         // Query has the parameters.
	Body            []Field         // Body has the fields of the body; nil where there is none.
	BodyOptional    bool
	Answers         map[int]any // Answers are values of the answers' types by status; nil for no content.
	Watch           any         // Watch is that of the Resource, for its list.
	WhileDraining   bool
}

// Column is a column of a table: its heading, and the path of the object's field.
type Column struct{ Heading, Field string }

// All returns every resource.
func All() []Resource { return slices.Clone(table) }

// At returns the resource at a path, which must exist.
func At(path string) Resource {
	return table[slices.IndexFunc(table, func(r Resource) bool { return r.Path == path })]
}

// PathOf returns the path of the object with the ID; "" when the API has no objects with its prefix.
func PathOf(id string) string {
	if r := ofID(id); r != nil {
		return ObjectPath(r.Path, id)
	}
	return ""
}

// NameOf returns the name of the object with the ID as `-o name` prints it, such as
// endpoint/ep-06hj. It is the ID alone when the API has no objects with its prefix.
func NameOf(id string) string {
	if r := ofID(id); r != nil {
		return strings.ReplaceAll(strings.ToLower(r.Noun), " ", "-") + "/" + id
	}
	return id
}

// ofID returns the resource whose objects' IDs have the prefix of the ID, or nil.
func ofID(id string) *Resource {
	prefix, _, _ := strings.Cut(id, "-")
	i := slices.IndexFunc(table, func(r Resource) bool { return r.IDPrefix == prefix && prefix != "" })
	if i < 0 {
		return nil
	}
	return &table[i]
}

// with returns the resource with its operations. Answers that an operation does not have are the
// list, the object, or nothing.
func (r Resource) with(operations ...Operation) Resource {
	for _, op := range operations {
		op.Scopes, op.WhileDraining = r.Write, r.WhileDraining || op.Method == http.MethodGet
		status, answer := http.StatusOK, r.Object
		switch {
		case op.Method == http.MethodGet && op.Pattern == "":
			op.Scopes, op.Watch, answer = r.Read, r.Watch, r.List
		case op.Method == http.MethodGet:
			op.Scopes = r.Read
		case op.Method == http.MethodDelete:
			status, answer = http.StatusNoContent, nil
		case op.Method == http.MethodPost && op.Pattern != "": // an action, which has no fields
			op.Body, op.BodyOptional, status, answer = []Field{}, true, http.StatusNoContent, nil
		default:
			op.Body = slices.DeleteFunc(slices.Clone(r.Fields), func(f Field) bool {
				return f.Only != "" && f.Only != op.Method
			})
			if op.Method == http.MethodPost {
				status = http.StatusCreated
			}
		}
		if op.Answers == nil {
			op.Answers = map[int]any{status: answer}
		}
		op.Pattern = r.Path + op.Pattern
		r.Operations = append(r.Operations, op)
	}
	return r
}

// op returns an operation. Its pattern is relative to the path of its resource.
func op(method, pattern, id, summary string, query ...Field) Operation {
	return Operation{Method: method, Pattern: pattern, ID: id, Summary: summary, Query: query}
}

// answering returns the operation with answers of its own.
func (o Operation) answering(answers map[int]any) Operation {
	o.Answers = answers
	return o
}
