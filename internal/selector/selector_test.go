// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package selector_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/selector"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

func endpoint(t *testing.T, url string) (*account.Endpoint, account.EndpointURL) {
	t.Helper()
	u, err := account.ParseEndpointURL(url)
	must.Succeed(t, err)
	return &account.Endpoint{
		ID: "ep-1", URL: u.String(), Type: account.TypeAgent,
		EndpointSettings: account.EndpointSettings{Name: "blue", Description: "Ärger: \"it's\", a\nb",
			Metadata: `{"team":"dock"}`}, Status: account.StatusOnline,
	}, u
}

func TestSelector_Matches(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		expression, url string
		want            bool
	}{
		{"", "http://a.b", true},
		{" \n", "http://a.b", true},
		{"ep.hostname.endsWith('.prod')", "http://a.prod", true},
		{"ep.hostname.endsWith('.prod')", "http://a.test", false},
		{"ep.id == 'ep-1' && ep.url == 'http://a.b' && ep.scheme == 'http' && ep.service == 'a' && ep.namespace == 'b'",
			"http://a.b:80", true},
		{"ep.port > 1000 && ep.scheme == \"tcp\"", "tcp://a.b:5432", true},
		{"ep.namespace in ['prod', 'test']", "http://a.test", true},
		{"ep.type == 'agent' && ep.name == 'blue' && ep.status == 'online' && ep.metadata.contains('dock')",
			"http://a.b",
			true},
		{"ep.description == 'Ärger: \"it\\'s\", a\\nb'", "http://a.b", true},
		{"ep.description.startsWith(\"Ärger\")\n  && // the second line\n  true", "http://a.b", true},
		{"ep.name.upperAscii() == 'BLUE'", "http://a.b", true},
		{"endpoint.url.contains('a.b') && endpoint.public_url == ep.url && endpoint.proto == 'http'", "http://a.b",
			true},
		{"endpoint.host == 'a.b' && endpoint.hostport == 'a.b:80' && endpoint.metadata.contains('dock')", "http://a.b",
			true},
		{"endpoint.url.contains('x')", "http://a.b", false},
	} {
		s, err := selector.Compile(tc.expression)
		if err != nil {
			t.Errorf("Compile(%q): %v", tc.expression, err)
			continue
		}
		e, u := endpoint(t, tc.url)
		got, err := s.Matches(e, u)
		if err != nil || got != tc.want {
			t.Errorf("%q on %s: got %v, %v, want %v", tc.expression, tc.url, got, err, tc.want)
		}
	}
}

func TestCompile_ReportsPosition(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, expression string
		line, column     int
		msg              string
	}{
		{"unknown field", "ep.hostnam == 'a'", 1, 3, "hostnam"},
		{"unknown field in the second line", "true &&\n  ep.color == 'red'", 2, 5, "color"},
		{"unknown variable", "e.id == ''", 1, 1, "e"},
		{"syntax", "ep.id == ", 1, 10, "yntax error"},
		{"wrong type", "ep.port == '80'", 1, 9, "_==_"},
		{"not a bool", "ep.hostname", 1, 1, "must yield a bool"},
		{"not surely a bool", "dyn(ep.hostname)", 1, 1, "must yield a bool"},
		{"too long", "true" + strings.Repeat(" ", selector.MaxLength), 1, 1, "at most 8192"},
	} {
		_, err := selector.Compile(tc.expression)
		var e *selector.Error
		if !errors.As(err, &e) {
			t.Errorf("%s: got %v, want an *Error", tc.name, err)
			continue
		}
		if e.Line != tc.line || e.Column != tc.column || !strings.Contains(e.Msg, tc.msg) {
			t.Errorf("%s: got %q, want line %d, column %d, %q", tc.name, e, tc.line, tc.column, tc.msg)
		}
	}
}

func TestSelector_FailsClosedOverCost(t *testing.T) {
	t.Parallel()
	list := "[" + strings.TrimSuffix(strings.Repeat("1,", 100), ",") + "]"
	s, err := selector.Compile(list + ".all(a, " + list + ".all(b, " + list + ".all(c, a + b + c > 0)))")
	must.Succeed(t, err)
	e, u := endpoint(t, "http://a.b")
	admitted, err := s.Matches(e, u)
	if err == nil || admitted || !strings.Contains(err.Error(), "cost limit") {
		t.Fatalf("got %v, %v, want a refusal that names the cost limit", admitted, err)
	}
}
