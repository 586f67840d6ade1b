// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
)

// Secrets that are shorter are not looked for in bodies: they would be found in ordinary words.
const (
	minWholeSecret = 6 // a header's whole value
	minCredential  = 6 // what follows the scheme of Authorization, and a password in it
	minParameter   = 8 // the value of a cookie, or of a parameter of a URL
)

// A masker masks the secrets of one exchange wherever they stand: in its headers and URL, and where
// an upstream repeats them, in bodies, frames and errors.
type masker struct {
	request  inspect.Message
	response *inspect.Message
	marked   []string
	secrets  *strings.Replacer // nil = there is none, or they are shown
	reveal   bool
}

// newMasker returns the masker of an exchange. With reveal it masks nothing.
func newMasker(e *inspect.Exchange, marked []string, reveal bool) *masker {
	m := &masker{request: e.Request, response: e.Response, marked: marked, reveal: reveal}
	if reveal {
		return m
	}
	m.request = maskHead(&e.Request, marked)
	found := secretsOf(&e.Request, &m.request)
	if e.Response != nil {
		response := maskHead(e.Response, marked)
		found = append(found, secretsOf(e.Response, &response)...)
		m.response = &response
	}
	m.secrets = replacerOf(found)
	return m
}

// maskHead returns a message without its body, with its secrets masked.
func maskHead(m *inspect.Message, marked []string) inspect.Message {
	head := *m
	head.Body = nil
	return inspect.Mask(&head, marked)
}

// text returns the text with its secrets masked.
func (m *masker) text(text string) string {
	if m.secrets == nil {
		return text
	}
	return m.secrets.Replace(text)
}

// body returns the data of a Content-Type with its secrets masked, and reports whether there was
// one: values that the headers have too, and members of JSON and of forms with a secret's name.
func (m *masker) body(contentType string, data []byte) ([]byte, bool) {
	if m.reveal || len(data) == 0 {
		return data, false
	}
	out := inspect.MaskBody(contentType, data, m.marked...)
	if m.secrets != nil {
		out = []byte(m.secrets.Replace(string(out)))
	}
	return out, !bytes.Equal(out, data)
}

// message returns the masked message of the side.
func (m *masker) message(side string) *inspect.Message {
	if side == requestSide {
		return &m.request
	}
	return m.response
}

// secretsOf returns the values of a message that its masked copy does not have, and their parts.
func secretsOf(m, masked *inspect.Message) []string {
	var found []string
	for _, fields := range [][2]http.Header{{m.Header, masked.Header}, {m.Trailer, masked.Trailer}} {
		for name, values := range fields[0] {
			for i, value := range values {
				switch shown := fields[1][name]; {
				case !isMasked(shown, i, value):
				case i < len(shown) && shown[i] != inspect.Masked: // a URL, of which a part is masked
					found = append(found, urlSecrets(value, shown[i])...)
				default:
					found = append(found, partsOf(name, value)...)
				}
			}
		}
	}
	if m.URL != masked.URL {
		found = append(found, urlSecrets(m.URL, masked.URL)...)
	}
	return found
}

func isMasked(shown []string, i int, value string) bool { return i >= len(shown) || shown[i] != value }

// partsOf returns the secrets in the value of a header: the whole of it, the credential after a
// scheme, the password of Basic, and the values of cookies.
func partsOf(name, value string) []string {
	value = strings.TrimSpace(value)
	found := atLeast(minWholeSecret, value)
	switch http.CanonicalHeaderKey(name) {
	case "Cookie":
		for pair := range strings.SplitSeq(value, ";") {
			if _, v, ok := strings.Cut(pair, "="); ok {
				found = append(found, atLeast(minParameter, strings.Trim(strings.TrimSpace(v), `"`))...)
			}
		}
		return found
	case "Set-Cookie":
		pair, _, _ := strings.Cut(value, ";")
		if _, v, ok := strings.Cut(pair, "="); ok {
			found = append(found, atLeast(minParameter, strings.Trim(strings.TrimSpace(v), `"`))...)
		}
		return found
	}
	scheme, credential, ok := strings.Cut(value, " ")
	if !ok {
		return found
	}
	credential = strings.TrimSpace(credential)
	found = append(found, atLeast(minCredential, credential)...)
	if strings.EqualFold(scheme, "basic") {
		if pair, err := base64.StdEncoding.DecodeString(credential); err == nil {
			_, password, _ := strings.Cut(string(pair), ":")
			found = append(found, atLeast(minCredential, string(pair), password)...)
		}
	}
	return found
}

// urlSecrets returns the parts of a URL's query and user information that its masked copy does not
// have.
func urlSecrets(whole, shown string) []string {
	given, err := url.Parse(whole)
	if err != nil {
		return atLeast(minParameter, whole)
	}
	var found []string
	for pair := range strings.SplitSeq(given.RawQuery, "&") {
		_, value, _ := strings.Cut(pair, "=")
		if strings.Contains(shown, pair) {
			continue
		}
		found = append(found, atLeast(minParameter, value)...)
		if plain, err := url.QueryUnescape(value); err == nil {
			found = append(found, atLeast(minParameter, plain)...)
		}
	}
	if password, ok := given.User.Password(); ok {
		found = append(found, atLeast(minParameter, password)...)
	}
	return found
}

func atLeast(length int, values ...string) []string {
	return slices.DeleteFunc(values, func(v string) bool { return len(v) < length })
}

// replacerOf returns a replacer of the secrets, also where JSON or a URL has escaped them; nil if
// there is none. The longest of two that begin in one place wins.
func replacerOf(secrets []string) *strings.Replacer {
	var forms []string
	for _, secret := range secrets {
		forms = append(forms, secret, html.EscapeString(secret), url.QueryEscape(secret), url.PathEscape(secret))
		for _, escapeHTML := range []bool{true, false} {
			var quoted bytes.Buffer
			enc := json.NewEncoder(&quoted)
			enc.SetEscapeHTML(escapeHTML)
			if enc.Encode(secret) == nil {
				inner := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(quoted.String()), `"`), `"`)
				forms = append(forms, inner, strings.ReplaceAll(inner, "/", `\/`))
			}
		}
		forms = append(forms, base64.StdEncoding.EncodeToString([]byte(secret)))
	}
	slices.SortFunc(forms, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	var pairs []string
	for _, form := range slices.Compact(forms) {
		if len(form) >= minWholeSecret && form != inspect.Masked {
			pairs = append(pairs, form, inspect.Masked)
		}
	}
	if len(pairs) == 0 {
		return nil
	}
	return strings.NewReplacer(pairs...)
}
