// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Secrets that are shorter are not looked for in bodies: they would be found in ordinary words.
const (
	minWholeSecret = 6 // a header's whole value
	minCredential  = 6 // what follows the scheme of Authorization, and a password in it
	minParameter   = 8 // the value of a cookie, or of a parameter of a URL
)

// Masker masks the secrets of one exchange wherever they are: in its headers and URL, and where an
// upstream repeats them, in other headers, bodies, frames and errors.
type Masker struct {
	Request  Message  // masked, without its body
	Response *Message // masked, without its body; nil = there is none

	marked  []string
	secrets *strings.Replacer // nil = there is none, or they are shown
	reveal  bool
}

// NewMasker returns the Masker of an exchange; marked are further names of headers, parameters and
// members of JSON that hold secrets. With reveal it masks nothing.
func NewMasker(e *Exchange, marked []string, reveal bool) *Masker {
	m := &Masker{Request: withoutBody(&e.Request), marked: marked, reveal: reveal}
	if e.Response != nil {
		response := withoutBody(e.Response)
		m.Response = &response
	}
	if reveal {
		return m
	}
	p := masking{marked: marked}
	m.Request = p.message(&m.Request)
	p.body(e.Request.textBody())
	if e.Response != nil {
		*m.Response = p.message(m.Response)
		p.body(e.Response.textBody())
	}
	for _, f := range e.Frames {
		p.body("", string(f.Data))
	}
	if m.secrets = replacerOf(p.found); m.secrets == nil {
		return m
	}
	m.maskEchoes(&m.Request)
	if m.Response != nil {
		m.maskEchoes(m.Response)
	}
	return m
}

func withoutBody(m *Message) Message {
	head := *m
	head.Body = nil
	return head
}

// maskEchoes masks the secrets where other headers repeat them.
func (m *Masker) maskEchoes(head *Message) {
	head.URL = m.Text(head.URL)
	for _, h := range []http.Header{head.Header, head.Trailer} { // message has made copies of them
		for name, values := range h {
			if masked := m.Text(strings.Join(values, "\n")); masked != strings.Join(values, "\n") {
				h[name] = strings.Split(masked, "\n")
			}
		}
	}
}

// Text returns the text with the exchange's secrets masked.
func (m *Masker) Text(text string) string {
	if m.secrets != nil {
		text = m.secrets.Replace(text)
	}
	if !m.reveal {
		text = new(masking).shaped(text)
	}
	return text
}

// Body returns decoded data of a Content-Type with its secrets masked, and reports whether there
// was one: values that the headers have too, those with a secret's name, and those with its shape.
func (m *Masker) Body(contentType string, data []byte) ([]byte, bool) {
	if m.reveal || len(data) == 0 {
		return data, false
	}
	p := masking{marked: m.marked}
	out := p.body(contentType, string(data))
	if m.secrets != nil {
		out = m.secrets.Replace(out)
	}
	return []byte(out), out != string(data)
}

// WireBody returns the body of one of the exchange's messages with its secrets masked. Of an
// encoded one it returns nothing: what is in it cannot be told.
func (m *Masker) WireBody(of *Message) []byte {
	if !m.reveal && isEncoded(of) {
		return nil
	}
	body, _ := m.Body(of.Header.Get("Content-Type"), of.Body)
	return body
}

func isEncoded(m *Message) bool {
	coding := m.Header.Get("Content-Encoding")
	return coding != "" && !strings.EqualFold(coding, "identity")
}

// textBody returns the Content-Type and the body of a message; none if the body is encoded.
func (m *Message) textBody() (contentType, body string) {
	if isEncoded(m) {
		return "", ""
	}
	return m.Header.Get("Content-Type"), string(m.Body)
}

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
		if len(form) >= minWholeSecret && form != Masked {
			pairs = append(pairs, form, Masked)
		}
	}
	if len(pairs) == 0 {
		return nil
	}
	return strings.NewReplacer(pairs...)
}
