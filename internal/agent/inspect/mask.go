// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"encoding/json"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Masked stands for a value that is not shown.
const Masked = "••••"

// secretHeaders always hold secrets; names that match secretName do, too.
var secretHeaders = map[string]bool{
	"Authorization": true, "Proxy-Authorization": true, "Cookie": true, "Set-Cookie": true, "Cookie2": true,
	"Set-Cookie2": true, "X-Amz-Security-Token": true, "X-Vault-Token": true, "X-Hub-Signature": true,
	"X-Hub-Signature-256": true, "Stripe-Signature": true, "X-Forwarded-Client-Cert": true,
}

// secretName matches names of headers, parameters of queries and forms, and members of JSON.
var secretName = regexp.MustCompile(
	`(?i)(^|[-_.])(access[-_]?key|api[-_]?key|apikey|auth|bearer|client[-_]?assertion|` +
		`credentials?|csrf|jwt|otp|pass|passphrase|passwd|password|private[-_]?key|pwd|saml(request|response)|secret|` +
		`session|session[-_]?id|sid|sig|signature|token|xsrf)$|token$|secret$|password$|apikey$|(?-i:[a-z]Key$)`)

// plainNames match secretName and are none.
var plainNames = map[string]bool{"surrogateKey": true, "cacheKey": true, "primaryKey": true, "foreignKey": true}

// codeNames are parameters that hold secrets of logins in a query or form only: members of JSON
// with these names are mostly something else.
var codeNames = map[string]bool{"code": true, "code_verifier": true, "key": true, "ticket": true}

// linkHeaders hold URLs, whose queries are masked.
var linkHeaders = []string{"Location", "Content-Location", "Referer", "Refresh", "Link", "X-Original-Url",
	"X-Original-Uri", "X-Forwarded-Uri"}

// IsSecret reports whether values of the header, parameter or member of JSON are masked.
func IsSecret(name string) bool {
	return secretHeaders[http.CanonicalHeaderKey(name)] ||
		secretName.MatchString(name) && !plainNames[name]
}

// Mask returns m with secrets masked: values of headers and trailers, of the parameters of queries,
// and of forms and JSON in a body without a Content-Encoding; of an encoded body, it removes the
// body. marked are further names, in any case. The frames of an exchange are not masked by it.
func Mask(m *Message, marked []string) Message {
	out := *m
	out.Header, out.Trailer = maskHeader(m.Header, marked), maskHeader(m.Trailer, marked)
	out.URL = maskURL(m.URL, marked)
	switch {
	case len(m.Body) == 0:
	case isEncoded(m):
		out.Body, out.Truncated = nil, true
	default:
		out.Body = MaskBody(m.Header.Get("Content-Type"), m.Body, marked...)
	}
	return out
}

func isMarked(name string, marked []string) bool {
	return IsSecret(name) || slices.ContainsFunc(marked, func(m string) bool { return strings.EqualFold(m, name) })
}

func maskHeader(h http.Header, marked []string) http.Header {
	if h == nil {
		return nil
	}
	out := maps.Clone(h)
	for name, values := range h {
		switch {
		case isMarked(name, marked):
			out[name] = slices.Repeat([]string{Masked}, len(values))
		case slices.Contains(linkHeaders, name):
			masked := make([]string, len(values))
			for i, v := range values {
				masked[i] = maskURL(v, marked)
			}
			out[name] = masked
		}
	}
	return out
}

var (
	// queryParameter is a parameter of a query, fragment or form.
	queryParameter = regexp.MustCompile(`([?&;#]|^)([^=&;#?\s<>"]{1,100})=([^&;#\s<>"]*)`)
	userinfo       = regexp.MustCompile(`://[^/@\s]*@`)
)

// maskURL masks the user and the parameters of a URL, or of a text with URLs.
func maskURL(u string, marked []string) string {
	u = userinfo.ReplaceAllLiteralString(u, "://"+Masked+"@")
	path, rest, found := u, "", false
	if i := strings.IndexAny(u, "?#"); i >= 0 {
		path, rest, found = u[:i], u[i:], true
	}
	if !found {
		return u
	}
	return path + maskParameters(rest, marked, nil)
}

// maskParameters masks the parameters of a query or form. found, unless it is nil, gets the values
// that it masks.
func maskParameters(s string, marked []string, found func(value string)) string {
	return queryParameter.ReplaceAllStringFunc(s, func(p string) string {
		m := queryParameter.FindStringSubmatch(p)
		name := strings.TrimSuffix(strings.ReplaceAll(strings.ToLower(m[2]), "%5b", "["), "%5d")
		name = strings.TrimSuffix(name[strings.LastIndexByte(name, '[')+1:], "]")
		if m[3] == "" || !isMarked(m[2], marked) && !isMarked(name, marked) && !codeNames[strings.ToLower(m[2])] {
			return p
		}
		if found != nil {
			found(m[3])
			if plain, err := url.QueryUnescape(m[3]); err == nil {
				found(plain)
			}
		}
		return m[1] + m[2] + "=" + Masked
	})
}

// jsonMember is a member of a JSON object with a string or number.
var jsonMember = regexp.MustCompile(`"((?:[^"\\]|\\.){1,100})"(\s*:\s*)("(?:[^"\\]|\\.)*("|$)|-?[0-9][0-9.eE+-]*)`)

// multipartName is the name of a part of a form; its value is what follows the empty line.
var multipartName = regexp.MustCompile(`(?is)(content-disposition:[^\r\n]*\bname="?([^"\r\n;]*)[^\r\n]*` +
	`(?:\r?\n[^\r\n]+)*\r?\n\r?\n)(.*?)(\r?\n--|$)`)

// MaskBody masks secrets in a body that has no Content-Encoding, or was decoded: values of forms
// and JSON by their names. Other bodies stay as they are.
func MaskBody(contentType string, body []byte, marked ...string) []byte {
	return maskBody(contentType, body, marked, nil)
}

// maskBody is MaskBody. found, unless it is nil, gets the values that it masks.
func maskBody(contentType string, body []byte, marked []string, found func(value string)) []byte {
	if found == nil {
		found = func(string) {}
	}
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		kind, _, _ = strings.Cut(strings.ToLower(contentType), ";")
		kind = strings.TrimSpace(kind)
	}
	switch {
	case kind == "application/x-www-form-urlencoded":
		return []byte(maskParameters(string(body), marked, found))
	case kind == "multipart/form-data":
		return multipartName.ReplaceAllFunc(body, func(part []byte) []byte {
			m := multipartName.FindSubmatch(part)
			if name := string(m[2]); !isMarked(name, marked) && !codeNames[name] {
				return part
			}
			found(string(m[3]))
			return slices.Concat(m[1], []byte(Masked), m[4])
		})
	case strings.HasSuffix(kind, "json"), looksLikeJSON(body):
		return jsonMember.ReplaceAllFunc(body, func(member []byte) []byte {
			m := jsonMember.FindSubmatch(member)
			if !isMarked(string(m[1]), marked) {
				return member
			}
			value := string(m[3])
			_ = json.Unmarshal(m[3], &value) // of a number and of what is cut off, the text
			found(value)
			return slices.Concat([]byte(`"`), m[1], []byte(`"`), m[2], []byte(`"`+Masked+`"`))
		})
	}
	return body
}

func looksLikeJSON(b []byte) bool {
	b = bytes.TrimSpace(b)
	return len(b) > 1 && (b[0] == '{' || b[0] == '[')
}
