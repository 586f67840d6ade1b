// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package accounttest owns tables that several packages' tests hold: every place where an endpoint
// URL enters accepts and refuses the same ones. Tests come in for the rows; nothing else uses it.
package accounttest

import "strings"

// Refusal is a URL that must be refused, and what the error must name.
type Refusal struct {
	URL   string
	Names string
}

// SameURLs are spellings of http://a.b.
func SameURLs() []string {
	return []string{"http://a.b", "http://a.b/", "http://a.b:", "http://a.b:80", "http://a.b:80/", "http://a.b:/",
		"http://A.B", "HTTP://A.b:80"}
}

// RefusedURLs are URLs that no endpoint with the kubernetes binding may have.
func RefusedURLs() []Refusal {
	const (
		scheme = "http or tcp"
		host   = "exactly two DNS labels"
		port   = "from 1 to 65535"
		ascii  = "printable ASCII"
	)
	long := strings.Repeat("a", 64)
	rows := []Refusal{
		{"a.b:8080", `"http://a.b:8080"`}, {"a.b", `"http://a.b"`}, {"//a.b", `"http://a.b"`},
		{"", "the scheme is missing"},
		{"a", "the scheme is missing"},
		{"tcp://a.b", "needs a port"}, {"tcp://a.b:", "needs a port"}, {"http://a.b/path", "path"},
		{"http://a.b//", "path"},
		{"http://a.b?q", "query"},
		{"http://a.b/?q=1", "query"}, {"http://a.b#f", "fragment"}, {"http://user:pw@a.b", "user name and password"},
		{"http://@a.b", "user name and password"},
		{"http://" + strings.Repeat("a", 300) + ".b", "300 characters"},
	}
	for _, p := range []string{"0", "70000", "99999999999", "-1", "080", "8x", "+80", "0x50", "65536", "80:80"} {
		rows = append(rows, Refusal{"tcp://a.b:" + p, port}, Refusal{"http://a.b:" + p, port})
	}
	for _, s := range []string{"https", "tls", "ftp", "", "tcp4", "udp"} {
		rows = append(rows, Refusal{s + "://a.b", scheme})
	}
	for _, h := range []string{"a", "a.b.c", ".b", "a.", "a.b.", "*.b", "a.*", "*", "10.0", "1a.b", "[::1]", "[a.b]",
		"",
		".", "..", "-a.b", "a-.b", "a.-b", "a.b-", "a_c.b",
		"a.b_c", "a%2e.b", "10.0.0.1", "a,b.c", "a..b", long + ".b", "a." + long, "xn--.b-"} {
		rows = append(rows, Refusal{"http://" + h, host})
	}
	rows = append(rows, Refusal{"http://[::1]:80", host})
	for _, h := range []string{"ä.b", "a.bé", "a\x00.b", "a.b\n", " a.b", "a .b", "a\t.b", "a.b\x7f", "a.\xff", "ａ.b"} {
		rows = append(rows, Refusal{"http://" + h, ascii})
	}
	return rows
}
