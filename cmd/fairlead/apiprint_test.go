// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account/resource"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// tableTime is a point in time in a table, as an expression.
const tableTime = `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`

func TestTable_TruncatesTimesToSeconds(t *testing.T) {
	t.Parallel()
	const object = `{"id":"ep-1","created_at":"2026-11-21T03:04:05.678901Z","updated_at":"2026-11-21T05:04:05.9+02:00","offline_since":"2026-11-21T03:04:05.1Z",` +
		`"description":"2026-11-21T03:04:05.678901Z","seen":{"last_active":"2026-11-21T03:04:06.5Z"},"expires_at":null,"odd_at":"never"}`
	r := resource.Resource{Noun: "endpoint"}
	for _, column := range [][2]string{{"ID", "id"}, {"CREATED", "created_at"}, {"UPDATED", "updated_at"},
		{"SEEN", "seen.last_active"}, {"EXPIRES", "expires_at"}, {"ODD", "odd_at"}, {"DESCRIPTION", "description"}} {
		r.Columns = append(r.Columns, resource.Column{Heading: column[0], Field: column[1]})
	}
	shown := func(format string, print func(a *apiCall) error) string {
		var out bytes.Buffer
		to := console{out: &out, env: func(string) string { return "" }}
		storetest.Must(t, print(&apiCall{console: to, output: output{format: format}}))
		return out.String()
	}
	list := func(a *apiCall) error { return a.printList(r, []json.RawMessage{json.RawMessage(object)}) }
	get := func(a *apiCall) error { return a.print(json.RawMessage(object), nil) }
	storetest.Equal(t, "list", strings.Join(strings.Fields(shown("table", list)), " "),
		"ID CREATED UPDATED SEEN EXPIRES ODD DESCRIPTION "+
			"ep-1 2026-11-21T03:04:05Z 2026-11-21T03:04:05Z 2026-11-21T03:04:06Z - never 2026-11-21T03:04:05.678901Z")
	storetest.Equal(t, "get", strings.Join(strings.Fields(shown("table", get)), " "),
		"id ep-1 created_at 2026-11-21T03:04:05Z updated_at 2026-11-21T03:04:05Z offline_since 2026-11-21T03:04:05Z "+
			"description 2026-11-21T03:04:05.678901Z seen last_active=2026-11-21T03:04:06Z expires_at - odd_at never")
	for _, format := range []string{"json", "yaml"} {
		for _, print := range []func(*apiCall) error{list, get} {
			if out := shown(format, print); strings.Count(out, "2026-11-21T03:04:05.678901Z") != 2 ||
				!strings.Contains(out, "2026-11-21T05:04:05.9+02:00") {
				t.Errorf("%s:\n%s", format, out)
			}
		}
	}
}
