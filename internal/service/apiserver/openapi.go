// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
)

// operation describes one method of a route.
type operation struct {
	id, summary string
	query       []string    // names of parameters, described in parameters
	body        schema      // the request's schema; nil for none
	optional    bool        // the body may be left out
	answers     map[int]any // by status: a value of the answer's type, nil for no content
	watch       any         // a value of the type of a watch's lines; nil for routes without a watch
}

// descriptionHandler answers with the description of the API, which is made once.
func (s *server) descriptionHandler() handler {
	describe := sync.OnceValues(s.describe)
	return func(c *call) error {
		text, err := describe()
		if err != nil {
			return err
		}
		return c.writeJSON(http.StatusOK, json.RawMessage(text))
	}
}

// describe returns the OpenAPI 3.1 document, made of the routes, the operations and the types of
// the answers.
func (s *server) describe() ([]byte, error) {
	types := &schemas{all: schema{}}
	paths := schema{}
	for pattern, methods := range s.routes() {
		path := schema{}
		if parameters := pathParameters(pattern); len(parameters) > 0 {
			path["parameters"] = parameters
		}
		for name, m := range methods {
			path[strings.ToLower(name)] = operations[name+" "+pattern].describe(types, name, pattern, m.scopes)
		}
		paths[pattern] = path
	}
	errorType := types.reference(account.ErrorBody{})
	document := schema{
		"openapi": "3.1.0",
		"info": schema{"title": "The account API of fairlead-server", "version": Version,
			"license": schema{"name": "Apache-2.0", "identifier": "Apache-2.0"},
			"description": "Absent fields of a PATCH stay, null is the default, lists are replaced, objects merged " +
				"one level. " +
				"Limits of texts are in bytes."},
		"servers":  []any{schema{"url": s.opt.BaseURL}},
		"security": []any{schema{"api_key": []string{}}},
		"paths":    paths,
		"components": schema{
			"securitySchemes": schema{"api_key": schema{"type": "http", "scheme": "bearer",
				"description": "an API key, which begins with " + account.APIKeyPrefix}},
			"parameters": parameters(s.opt.VersionHeaders[0]),
			"headers": schema{
				"operation_id": schema{"description": "the id of this request; the server's log has it too",
					"schema": schema{"type": "string"}}},
			"responses": errorResponses(errorType),
			"schemas":   types.all,
		},
	}
	text, err := json.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("encoding the description of the API: %w", err)
	}
	return text, nil
}

func (o operation) describe(types *schemas, method, pattern string, scopes []account.Scope) schema {
	answers := schema{}
	for status, value := range o.answers {
		answer := schema{"description": http.StatusText(status),
			"headers": schema{OperationHeader: reference("headers", "operation_id")}}
		content := schema{}
		if value != nil {
			content["application/json"] = schema{"schema": types.reference(value)}
		}
		if o.watch != nil {
			content["application/x-ndjson"] = schema{"schema": types.reference(o.watch)}
		}
		if len(content) > 0 {
			answer["content"] = content
		}
		answers[strconv.Itoa(status)] = answer
	}
	for _, status := range o.errors(method, pattern) {
		answers[strconv.Itoa(status)] = reference("responses", strconv.Itoa(status))
	}
	query := []any{reference("parameters", "version")}
	for _, name := range o.query {
		query = append(query, reference("parameters", name))
	}
	out := schema{"operationId": o.id, "summary": o.summary,
		"description": "Scope: " + httpkit.ScopeAlternatives(scopes) +
			".",
		"parameters": query, "responses": answers}
	if o.body != nil {
		out["requestBody"] = schema{"required": !o.optional,
			"content": schema{"application/json": schema{"schema": o.body}}}
	}
	return out
}

// errors returns the statuses of errors that the operation may answer.
func (o operation) errors(method, pattern string) []int {
	all := []int{400, 401, 403, 429, 500, 503}
	if strings.Contains(pattern, "{") {
		all = append(all, 404)
	}
	if method != http.MethodGet {
		all = append(all, 409)
	}
	if o.body != nil {
		all = append(all, 413, 415)
	}
	if slices.Contains(o.query, "resource_version") {
		all = append(all, 410)
	}
	return all
}

// errorResponses describes errors by status, each with its codes.
func errorResponses(body schema) schema {
	titles := map[int][]string{}
	for _, info := range account.Codes() {
		if isAPICode(info.Code) {
			titles[info.Status] = append(titles[info.Status], string(info.Code)+": "+info.Title)
		}
	}
	all := schema{}
	for _, status := range slices.Sorted(maps.Keys(titles)) {
		all[strconv.Itoa(status)] = schema{"description": strings.Join(titles[status], "; "),
			"content": schema{"application/json": schema{"schema": body}},
			"headers": schema{OperationHeader: reference("headers", "operation_id")}}
	}
	return all
}

// isAPICode reports whether the API answers with the code; others are of clients and of the edge.
func isAPICode(c account.Code) bool { return strings.HasPrefix(string(c), "ERR_FL_1") }

var placeholder = regexp.MustCompile(`{([a-z_]+)}`)

func pathParameters(pattern string) []any {
	var all []any
	for _, found := range placeholder.FindAllStringSubmatch(pattern, -1) {
		all = append(all, schema{"name": found[1], "in": "path", "required": true, "schema": schema{"type": "string"}})
	}
	return all
}

// parameters describes the query parameters of all operations, and the version header.
func parameters(versionHeader string) schema {
	query := func(name, description string, of schema) schema {
		return schema{"name": name, "in": "query", "description": description, "schema": of}
	}
	return schema{
		"version": schema{"name": versionHeader, "in": "header", "required": true,
			"description": "which version of the API the client speaks", "schema": schema{"const": Version}},
		"before_id": query("before_id", "a position in the list: the page begins after it; it need not exist any more",
			schema{"type": "string", "pattern": positionPattern.String()}),
		"limit": query("limit", "how many objects a page has at most",
			schema{"type": "integer", "minimum": 1, "maximum": account.MaxPageLimit,
				"default": account.DefaultPageLimit}),
		"binding": query("binding", "only endpoints with one of these bindings: "+strings.Join(bindings, ", ")+
			", with commas between them", schema{"type": "string"}),
		"endpoint_type": query("type", "only endpoints of this type",
			schema{"enum": []string{account.TypeAgent, account.TypeCloud}}),
		"url": query("url", "only endpoints with this URL, in any spelling", schema{"type": "string"}),
		"owner_cluster": query("owner_cluster",
			"only endpoints of objects in the cluster with this uid; not with watch=true",
			schema{"type": "string", "maxLength": account.MaxUID}),
		"type": query("type", "only events of this type", schema{"enum": account.AuditTypes()}),
		"object_id": query("object_id", "only events about this object",
			schema{"type": "string", "pattern": positionPattern.String()}),
		"q": query("q", "only what has each of these words: of a user, in the user name, e-mail address, "+
			"name, provider's name, provider_user_id or id; of a session, in these of its user, the URL or the IP "+
			"address; "+
			"case and accents do not matter", schema{"type": "string", "maxLength": account.MaxSearch}),
		"provider": query("provider",
			"only users, and sessions of users, whose identity provider's name has this part; "+
				"case and accents do not matter", schema{"type": "string", "maxLength": account.MaxSearch}),
		"user_id": query("user_id", "only the user with this id, or the user's sessions",
			schema{"type": "string", "pattern": positionPattern.String()}),
		"endpoint": query("endpoint",
			"only sessions at endpoints with this part in their URL, in any case, or with this id; "+
				"of users those with such a session, and without ip and country those who have ever accessed one",
			schema{"type": "string", "maxLength": account.MaxSearch}),
		"ip": query("ip",
			"only sessions that logged in from this IP address, or from addresses that begin with this; of users "+
				"those with one",
			schema{"type": "string", "pattern": "^[0-9A-Fa-f:.]{0,45}$"}),
		"country": query("country",
			"only sessions that logged in from this country, by its code of ISO 3166-1; of users those with one",
			schema{"type": "string", "pattern": "^([A-Za-z]{2})?$"}),
		"sort": query("sort", "the order of users: the newest first, or the most recently active first",
			schema{"enum": []string{"created_at", "last_active"}, "default": "created_at"}),
		"before_active": query("before_active",
			"with before_id and sort=last_active: the position in the list; it is part of next_page_uri",
			schema{"type": "string", "format": "date-time"}),
		"watch": query("watch", "true keeps the answer open and sends each change as a line",
			schema{"type": "boolean", "default": false}),
		"resource_version": query("resource_version",
			"the version from a list's first page, or of a watch's last line; required with watch=true",
			schema{"type": "string"}),
	}
}
