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
	names map[string]string // by the secret
}

// recordSecret records a secret of at least 8 bytes.
func recordSecret(name, secret string) {
	if len(secret) < 8 {
		return
	}
	secrets.Lock()
	defer secrets.Unlock()
	if secrets.names == nil {
		secrets.names = map[string]string{secretPrefix: "a client secret", alice.password: "a password",
			bob.password: "a password"}
	}
	secrets.names[secret] = name
}

// recordSecrets records the secrets of a request, its form and the header of its response.
func recordSecrets(r *http.Request, form url.Values, response http.Header) {
	for name, values := range r.URL.Query() {
		switch name {
		case "code", "state", "ticket", "nonce", "SAMLRequest":
			recordSecret(name+" of "+r.URL.Path, values[0])
		}
	}
	if strings.HasSuffix(r.URL.Hostname(), domain) {
		recordSecret("an assertion", form.Get("SAMLResponse"))
		for _, line := range response.Values("Set-Cookie") {
			if c, err := http.ParseSetCookie(line); err == nil && strings.HasPrefix(c.Name, "__Host-fl-") {
				recordSecret("the cookie "+c.Name, c.Value)
			}
		}
	}
}

// findSecrets returns the names of the secrets in a log, and the number of recorded secrets.
func findSecrets(log string) (found []string, total int) {
	secrets.Lock()
	defer secrets.Unlock()
	for secret, name := range secrets.names {
		if strings.Contains(log, secret) || strings.Contains(log, url.QueryEscape(secret)) {
			found = append(found, name)
		}
	}
	return found, len(secrets.names)
}
