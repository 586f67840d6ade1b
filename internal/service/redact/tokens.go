// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"regexp"
	"strings"
)

var (
	// secretParameter is a parameter of a URL or form whose value is a secret or becomes one.
	secretParameter = regexp.MustCompile(`(?i)\b((?:[a-z_]*(?:token|secret|password|assertion)|code|state|nonce|` +
		`ticket|samlresponse|samlrequest|relaystate|client_info|session_state|sid)=)[^&\s"'<>]+`)
	userInfo = regexp.MustCompile(`//[^/\s@"]+@`)
	jws      = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)*`)
	bearer   = regexp.MustCompile(`(?i)\b(bearer|basic) [A-Za-z0-9._~+/=-]{8,}`)
	longWord = regexp.MustCompile(`[A-Za-z0-9_+=-]{20,}`)
	uuid     = regexp.MustCompile(`^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`)
)

// Tokens returns a text of another server's, or one that quotes it, with "…" in place of what looks
// like a token.
func Tokens(s string) string {
	s = secretParameter.ReplaceAllString(s, "${1}…")
	s = userInfo.ReplaceAllString(s, "//…@")
	s = jws.ReplaceAllString(s, "…")
	s = bearer.ReplaceAllString(s, "$1 …")
	return longWord.ReplaceAllStringFunc(s, func(word string) string {
		if strings.ContainsAny(word, "0123456789") && !uuid.MatchString(word) {
			return "…"
		}
		return word
	})
}
