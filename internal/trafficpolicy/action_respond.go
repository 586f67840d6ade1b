// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"encoding/json"
	"net/http"
	"strings"
)

// customResponse answers with a text of the policy instead of the upstream.
type customResponse struct {
	status  int
	headers []header
	body    *template
}

func (a *customResponse) provision(c *config) {
	a.status = c.number("status_code", http.StatusOK, 200, 599)
	a.headers = c.headers("headers", false)
	a.body = c.template("body")
	if a.body != nil && !bodyAllowed(a.status) {
		c.c.problem(c.values["body"], "", "an answer with status %d has no body", a.status)
	}
}

func (a *customResponse) serve(x *exchange) {
	body, err := a.body.render(x, nil)
	if err != nil {
		x.fail()
		return
	}
	headers := renderHeaders(x, a.headers)
	if headers.Get("Content-Type") == "" && bodyAllowed(a.status) && body != "" {
		headers.Set("Content-Type", contentType(body))
	}
	x.respond(a.status, headers, body)
}

// contentType guesses the media type of a text.
func contentType(body string) string {
	if s := strings.TrimSpace(body); (strings.HasPrefix(s, "{") || strings.HasPrefix(s, "[")) && json.Valid([]byte(s)) {
		return "application/json"
	}
	return http.DetectContentType([]byte(body))
}
