// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
)

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
	paths, parameters := schema{}, schema{
		"version": schema{"name": s.opt.VersionHeaders[0], "in": "header", "required": true,
			"description": "which version of the API the client speaks", "schema": schema{"const": Version}}}
	for pattern, methods := range s.routes() {
		path := schema{}
		if strings.Contains(pattern, "{id}") {
			path["parameters"] = []any{schema{"name": "id", "in": "path", "required": true,
				"schema": schema{"type": "string"}}}
		}
		for name, m := range methods {
			path[strings.ToLower(name)] = describeOperation(types, m.Operation)
			for _, p := range m.Query {
				of := describeItem(p)
				delete(of, "description")
				parameters[cmp.Or(p.Key, p.Name)] = schema{"name": p.Name, "in": "query",
					"description": p.Description, "schema": of}
			}
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
			"parameters": parameters,
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

func describeOperation(types *schemas, o resource.Operation) schema {
	answers := schema{}
	for status, value := range o.Answers {
		answer := schema{"description": http.StatusText(status),
			"headers": schema{OperationHeader: reference("headers", "operation_id")}}
		content := schema{}
		if value != nil {
			content["application/json"] = schema{"schema": types.reference(value)}
		}
		if o.Watch != nil {
			content["application/x-ndjson"] = schema{"schema": types.reference(o.Watch)}
		}
		if len(content) > 0 {
			answer["content"] = content
		}
		answers[strconv.Itoa(status)] = answer
	}
	for _, status := range errorStatuses(o) {
		answers[strconv.Itoa(status)] = reference("responses", strconv.Itoa(status))
	}
	query := []any{reference("parameters", "version")}
	for _, p := range o.Query {
		query = append(query, reference("parameters", cmp.Or(p.Key, p.Name)))
	}
	out := schema{"operationId": o.ID, "summary": o.Summary, "parameters": query, "responses": answers,
		"description": "Scope: " + httpkit.ScopeAlternatives(o.Scopes) + "."}
	if o.Body != nil {
		out["requestBody"] = schema{"required": !o.BodyOptional,
			"content": schema{"application/json": schema{"schema": describeFields(o.Body)}}}
	}
	return out
}

// errorStatuses returns the statuses of errors that the operation may answer.
func errorStatuses(o resource.Operation) []int {
	all := []int{400, 401, 403, 429, 500, 503}
	if strings.Contains(o.Pattern, "{") {
		all = append(all, 404)
	}
	if o.Method != http.MethodGet {
		all = append(all, 409)
	}
	if o.Body != nil {
		all = append(all, 413, 415)
	}
	if o.Watch != nil {
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
