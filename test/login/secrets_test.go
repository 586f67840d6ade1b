// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"net/http"
	"net/url"
	"strings"
	"sync"
)

// secrets are the cookies, codes, states, tokens and passwords sent in all tests. No log may
// contain them.
var secrets struct {
	sync.Mutex
	seen map[string]string // what it is, by the text
}

func keepSecret(what, text string) {
	if len(text) < 8 {
		return
	}
	secrets.Lock()
	defer secrets.Unlock()
	if secrets.seen == nil {
		secrets.seen = map[string]string{secretPrefix: "a client secret", alice.password: "a password",
			bob.password: "a password"}
	}
	secrets.seen[text] = what
}

// overhear keeps the secrets of a request and its answer.
func overhear(r *http.Request, form url.Values, answer http.Header) {
	for name, values := range r.URL.Query() {
		switch name {
		case "code", "state", "ticket", "nonce", "SAMLRequest":
			keepSecret(name+" of "+r.URL.Path, values[0])
		}
	}
	if strings.HasSuffix(r.URL.Hostname(), domain) {
		keepSecret("an assertion", form.Get("SAMLResponse"))
		for _, line := range answer.Values("Set-Cookie") {
			if c, err := http.ParseSetCookie(line); err == nil && strings.HasPrefix(c.Name, "__Host-fl-") {
				keepSecret("the cookie "+c.Name, c.Value)
			}
		}
	}
}

// leaked returns which secrets are in a log, and how many were looked for.
func leaked(log string) (found []string, looked int) {
	secrets.Lock()
	defer secrets.Unlock()
	for text, what := range secrets.seen {
		if strings.Contains(log, text) || strings.Contains(log, url.QueryEscape(text)) {
			found = append(found, what)
		}
	}
	return found, len(secrets.seen)
}
