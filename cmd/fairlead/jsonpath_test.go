// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TestJSONPath_PrintsAsKubectl has the templates of kubectl's documentation, and what it prints.
func TestJSONPath_PrintsAsKubectl(t *testing.T) {
	t.Parallel()
	const answer = `{"items":[
		{"url":"http://a.demo","status":"online","port":80,"bindings":["public"],"owner":null},
		{"url":"http://b.demo","status":"offline","port":30000000,"bindings":[],"owner":{"kind":"<x>","uid":"1"}}]}`
	for text, want := range map[string]string{
		`{.items[*].url}`:        "http://a.demo http://b.demo",
		`{$.items[0].url}`:       "http://a.demo",
		`{.items[-1].port}`:      "30000000",
		`{.items[0].no}|{..uid}`: "|1",
		`{range .items[*]}{.url}{"\t"}{@.status}{"\n"}{end}`:    "http://a.demo\tonline\nhttp://b.demo\toffline\n",
		`{range .items[*]}{range .bindings[*]}<{@}>{end};{end}`: "<public>;;",
		`{.items[?(@.status=="online")].url}`:                   "http://a.demo",
		`{.items[?(@.port>80)]['url','status']}`:                "http://b.demo offline",
		`{.items[*].owner}`:                                     ` {"kind":"\u003cx\u003e","uid":"1"}`,
		`text {"{}"} {'"'}`:                                     `text {} "`,
		"{\"\\u001b[2J\"}":                                      `\x1b[2J`,
	} {
		o, out := output{format: formatJSONPath + text}, bytes.Buffer{}
		if err := o.parseFlags(); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		must.Succeed(t, o.printTemplate(&out, []byte(answer)))
		if out.String() != want {
			t.Errorf("%s prints %q, want %q", text, out.String(), want)
		}
	}
	for text, want := range map[string]string{
		`{.url`: "is not closed", `{{.url}}`: "is not closed",
		`{range .items[*]}{.url}`: "needs an {end}", `{.url}{end}{range .x}`: "needs an {end}",
		`{url}`: `"url" is no path`, `{.items[}`: "jsonpath", `{"\q"}`: "template",
	} {
		o := output{format: formatJSONPath + text}
		if err := o.parseFlags(); err == nil || !strings.Contains(err.Error(), want) || exitCode(err) != exitUsage {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
