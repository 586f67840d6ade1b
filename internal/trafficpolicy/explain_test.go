// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"strings"
	"testing"
)

// TestExplain_NamesRemedy checks that syntax of other languages gets one message, with what to
// write instead.
func TestExplain_NamesRemedy(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		"req.method = 'GET'":   "column 17: = is no operator: to compare, write ==",
		"req.method === 'GET'": "column 19: === is no operator: to compare, write ==",
		"req.method =~ '^G'": "column 17: =~ is no operator: for a regular expression, write " +
			"TEXT.matches(",
		"req.method <> 'GET'":                     "column 18: <> is no operator: write !=",
		"req.method == 'a' & req.method == 'b'":   "column 24: & is no operator: write &&",
		"req.method == 'a' and req.method == 'b'": "column 24: and is no operator: write &&",
		"req.method == 'a' or req.method == 'b'":  "column 24: or is no operator: write ||",
		"not (req.method == 'a')":                 "column 10: not is no operator: write !",
		"req.method == 'GET":                      "column 20: the text that begins here is not closed",
		"req.headers['x-a'] == 'b'": "column 25: this is a list of texts, as a header or parameter " +
			"may come several times: take one",
		"getReqHeader('x-a').startsWith('b')": "column 36: this is a list of texts",
		"req.headers == 'b'":                  "column 18: this is a map of names to lists",
		"req.cookies['a'] == 'b'":             "column 23: this is a list of cookies",
		"getReqCookie('a') == 'b'": "column 24: a map is compared with a text: of a cookie, write " +
			"getReqCookie('NAME').value",
		"req.content_length > '5'": "column 25: > does not take values of the types (int, string); " +
			"convert one",
		"req.method in 'GET'":        "column 17: in looks a value up in a list or map",
		"lower(req.method) == 'get'": "column 11: lower is called on a text: write TEXT.lower()",
		"request.method == 'GET'":    "column 6: there is no variable request.method; did you mean req.method?",
		"http.request.headers['a'] == ['b']": "column 6: there is no variable http.request.headers; did you " +
			"mean req.headers?",
		"request.path.startsWith('/a')": "column 6: there is no variable request.path; did you mean req.path?",
		"source.ip == '192.0.2.1'":      "column 6: there is no variable source.ip; did you mean conn.client_ip?",
		"req.Method == 'GET'":           "column 6: there is no variable req.Method; did you mean req.method?",
		"req.metod == 'GET'":            "column 6: there is no variable req.metod; did you mean req.method?",
		"request.auth == 'a'":           "column 6: there is no variable request.auth in on_http_request",
		"response.status_code == 200":   "column 6: res.status_code is not known in on_http_request",
	} {
		_, problems := Check(onRequest(expression, "{type: deny}"), Options{})
		if len(problems) != 1 || !strings.Contains(problems[0].String(), want) {
			t.Errorf("%s: %v\nwant %s", expression, problems, want)
		}
	}
}

func TestExplain_FindsTabs(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		"on_http_request:\n\t- actions: [{type: deny}]\n": "line 2, column 1: the line is " +
			"indented with a tab",
		"on_http_request:\n- actions:\n  - type: deny\n \t  config: {}\n": "line 4, column 2: the line is " +
			"indented with a tab",
		"on_http_request:\n- actions:\n  - type: deny\n   config: {}\n": "this is neither YAML nor JSON",
		"on_http_request:\r\n- actions:\r\n\t- type: deny\r\n": "line 3, column 1: the line is " +
			"indented with a tab",
		"on_http_request:\n- actions:\n  - {type: deny}\n- actions: [\t}]\n": "this is neither YAML nor JSON",
	} {
		_, problems := Check(doc, Options{})
		if len(problems) != 1 || !strings.Contains(problems[0].String(), want) {
			t.Errorf("%q: %v\nwant %s", doc, problems, want)
		}
	}
	if _, problems := Check("{\n\t\"on_http_request\": [\n\t\t{\"actions\": [{\"type\": \"deny\"}]}\n\t]\n}\n",
		Options{}); len(problems) > 0 {
		t.Errorf("JSON with tabs: %v", problems)
	}
}
