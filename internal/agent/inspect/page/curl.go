// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
)

// curlPage is the data of the page of a curl command.
type curlPage struct {
	Path      string
	Command   string
	Notes     []string
	Revealed  bool
	HasSecret bool
}

// exports are the pages that give exchanges to other programs.
type exports struct {
	recorder Recorder
	version  string // version is the agent's.
	logger   *slog.Logger
}

// curl shows a request as a curl command; a POST shows it with its secrets.
func (x *exports) curl(c *call, e *inspect.Exchange) error {
	if e.Raw || e.Request.Method == "" {
		return &problem{http.StatusConflict, "Not possible",
			"Only HTTP requests have a curl command, and this is none."}
	}
	mask := maskerOf(x.recorder, e, c.isPost())
	p := curlPage{Path: exchangePath(e.ID), Revealed: c.isPost()}
	p.Command, p.Notes = curlCommand(e, mask)
	p.HasSecret = strings.Contains(p.Command, inspect.Masked)
	if !p.HasSecret && !p.Revealed {
		// The body may be in base64, where a mask is not seen.
		plain, _ := curlCommand(e, newMasker(e, nil, true))
		p.HasSecret = p.Command != plain
	}
	return c.show(http.StatusOK, view{Page: "curl", Title: "curl command", Back: true, Data: p})
}

// notByCurl are the header fields that curl writes by itself, or that belong to one connection.
var notByCurl = []string{"Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Upgrade", "Te",
	"Trailer", "Proxy-Connection", "Http2-Settings"}

// curlCommand returns the command that sends a request to its endpoint, for a POSIX shell, and what
// it cannot do. No text of the request can add a word to the command or a file to the request.
func curlCommand(e *inspect.Exchange, mask *masker) (command string, notes []string) {
	m := &mask.request
	words := []string{"curl", "--globoff", "--path-as-is"}
	switch {
	case m.Method == http.MethodHead:
		words = append(words, "--head")
	case m.Method != http.MethodGet || len(e.Request.Body) > 0:
		words = append(words, "--request "+shellQuote(m.Method))
	}
	words = append(words, "--url "+shellQuote(curlURL(e, m)))
	for _, name := range slices.Sorted(maps.Keys(m.Header)) {
		if slices.Contains(notByCurl, http.CanonicalHeaderKey(name)) || !httpguts.ValidHeaderFieldName(name) {
			continue
		}
		for _, value := range m.Header[name] {
			field := name + ": " + value
			if value == "" {
				field = name + ";" // curl leaves out a field without a value otherwise
			}
			words = append(words, "--header "+shellQuote(field))
		}
	}
	if m.Header.Get("Accept-Encoding") != "" {
		words = append(words, "--compressed")
	}
	body, coded, note := curlBody(e, mask)
	if note != "" {
		notes = append(notes, note)
	}
	if !coded {
		words = slices.DeleteFunc(words, func(word string) bool {
			return strings.HasPrefix(word, "--header 'Content-Encoding:")
		})
	}
	before := ""
	switch {
	case len(body) == 0:
	case isShellText(body):
		words = append(words, "--data-raw "+shellQuote(string(body)))
	default:
		before = "printf %s " + shellQuote(base64.StdEncoding.EncodeToString(body)) + " | base64 -d | "
		words = append(words, "--data-binary @-")
	}
	if len(body) > 0 && m.Header.Get("Content-Type") == "" {
		words = append(words, "--header 'Content-Type:'") // or curl would call it a form
	}
	if e.Request.Truncated {
		notes = append(notes, fmt.Sprintf("The body had %s, of which %s were recorded.",
			formatSize(e.Request.BodySize), formatSize(int64(len(e.Request.Body)))))
	}
	return before + strings.Join(words, " \\\n  "), notes
}

// curlBody returns the body of a request for its command, and whether it has its content codings:
// one with a secret in it is decoded and masked, one that cannot be decoded is left out.
func curlBody(e *inspect.Exchange, mask *masker) (body []byte, coded bool, note string) {
	m := &e.Request
	if mask.reveal || len(m.Body) == 0 {
		return m.Body, true, ""
	}
	plain := decodeBody(m)
	if isOpaque(m, plain) {
		return nil, true, "The body is left out, because the inspector cannot look for secrets in it."
	}
	masked, hidden := mask.body(m.Header.Get("Content-Type"), plain.data)
	if !hidden {
		return m.Body, true, ""
	}
	return masked, len(plain.codings) == 0, "Secrets in the body are masked."
}

// isOpaque reports whether a body has a content coding that hides what is in it.
func isOpaque(m *inspect.Message, body decoded) bool {
	if body.note == "" {
		return false
	}
	_, isText := textOf(m.Body, "", "", m.Truncated)
	return !isText
}

// curlURL returns the URL of a request: the endpoint's, with the path of the request line.
func curlURL(e *inspect.Exchange, m *inspect.Message) string {
	if strings.HasPrefix(m.URL, "http://") || strings.HasPrefix(m.URL, "https://") {
		return m.URL
	}
	base := e.EndpointURL
	if !strings.Contains(base, "://") {
		base = "http://" + e.Request.Header.Get("Host")
	}
	if !strings.HasPrefix(m.URL, "/") {
		return strings.TrimSuffix(base, "/") + "/"
	}
	return strings.TrimSuffix(base, "/") + m.URL
}

// isShellText reports whether data can stand in a command: text without characters that a terminal
// acts on.
func isShellText(data []byte) bool {
	return utf8.Valid(data) && !strings.ContainsFunc(string(data), func(r rune) bool {
		return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Co, unicode.Zl,
			unicode.Zp) || r == unicode.ReplacementChar)
	})
}

// shellQuote returns the text as one word of a POSIX shell. Bytes that a terminal would act on are
// octal escapes of printf.
func shellQuote(text string) string {
	if isShellText([]byte(text)) {
		return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	}
	var b strings.Builder
	b.WriteString(`"$(printf '`)
	for _, ch := range []byte(text) {
		if ch > ' ' && ch < 0x7f && ch != '\'' && ch != '\\' && ch != '%' {
			b.WriteByte(ch)
		} else {
			fmt.Fprintf(&b, `\%03o`, ch)
		}
	}
	b.WriteString(`')"`)
	return b.String()
}
