// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
)

// editPage is the data of the form that replays a request with changes.
type editPage struct {
	Path      string
	Endpoint  string
	Method    string
	Target    string
	Header    string // a field a line
	Body      string
	BodyNote  string // why the body cannot be edited; "" = it can
	Revealed  bool
	HasSecret bool
	Problem   string
}

// replays are the pages that send a request again.
type replays struct{ recorder Recorder }

// edit shows the form; a POST shows it with its secrets.
func (p *replays) edit(c *call, e *inspect.Exchange) error {
	if err := checkReplay(e); err != nil {
		return err
	}
	return c.showEdit(http.StatusOK, p.pageOf(e, c.isPost()))
}

func (c *call) showEdit(status int, p editPage) error {
	return c.show(status, view{Page: "edit", Title: "Replay with changes", Back: true, Data: p})
}

func checkReplay(e *inspect.Exchange) error {
	if e.Raw || e.Request.Method == "" {
		return &problem{http.StatusConflict, "Not possible", "Only HTTP requests can be replayed, and this is none."}
	}
	return nil
}

func (p *replays) pageOf(e *inspect.Exchange, reveal bool) editPage {
	mask := maskerOf(p.recorder, e, reveal)
	form := editPage{Path: exchangePath(e.ID), Endpoint: e.EndpointURL, Method: mask.request.Method,
		Target: mask.request.URL, Header: headerLines(mask.request.Header), Revealed: reveal}
	var hidden bool
	form.Body, hidden, form.BodyNote = editableBody(&e.Request, mask)
	form.HasSecret = hidden || form.Target != e.Request.URL || form.Header != headerLines(e.Request.Header)
	return form
}

// headerLines returns a header as text, a field a line, in the order of their names.
func headerLines(h http.Header) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	return b.String()
}

// editableBody returns the body of a request as text, whether there was a secret in it, and why it
// cannot be edited.
func editableBody(m *inspect.Message, mask *masker) (text string, hidden bool, note string) {
	body := decodeBody(m)
	data, hidden := mask.body(m.Header.Get("Content-Type"), body.data)
	switch {
	case m.Truncated:
		return "", hidden, "The body was recorded in part only."
	case body.note != "" || body.cut || !utf8.Valid(data) || strings.ContainsRune(string(data), 0):
		return "", hidden, "The body is not text; it is sent as it was."
	}
	return string(data), hidden, ""
}

// replay sends a request to the upstream again: as it was, or with the changes of the form.
func (p *replays) replay(c *call, e *inspect.Exchange) error {
	if err := checkReplay(e); err != nil {
		return err
	}
	var change inspect.Change
	var err error
	if form := c.r.PostForm; form.Has("edited") {
		page := p.pageOf(e, form.Get("revealed") == "1")
		if change, err = page.change(e, form.Get("method"), form.Get("target"), form.Get("header"),
			form.Get("body")); err != nil {
			page.Method, page.Target, page.Header = form.Get("method"), form.Get("target"), form.Get("header")
			page.Body, page.Problem = form.Get("body"), sentence(err.Error())
			return c.showEdit(http.StatusUnprocessableEntity, page)
		}
	}
	id, err := p.recorder.Replay(context.WithoutCancel(c.r.Context()), e.ID, change)
	if err != nil && id == "" { // with an ID, the new exchange has the error, too
		mask := maskerOf(p.recorder, e, false)
		return &problem{http.StatusBadGateway, "Not replayed", sentence(mask.text(err.Error()))}
	}
	return c.redirect(exchangePath(id))
}

// sentence returns an error's text as a sentence.
func sentence(text string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return ""
	}
	text = strings.ToUpper(text[:1]) + text[1:]
	return strings.TrimSuffix(text, ".") + "."
}

// change returns how the form differs from what it was filled with.
func (p *editPage) change(e *inspect.Exchange, method, target, header, body string) (inspect.Change, error) {
	var c inspect.Change
	if method = strings.TrimSpace(method); method != p.Method {
		if !httpguts.ValidHeaderFieldName(method) {
			return c, fmt.Errorf("method %q is not a word of HTTP; write one such as GET or POST", shorten(method, 40))
		}
		c.Method = method
	}
	if target = strings.TrimSpace(target); target != p.Target {
		if err := checkTarget(target); err != nil {
			return c, err
		}
		c.Path = target
	}
	if normalLines(header) != normalLines(p.Header) {
		h, err := parseHeader(header)
		if err != nil {
			return c, err
		}
		c.Header = h
	}
	if p.BodyNote != "" || normalLines(body) == normalLines(p.Body) {
		return c, nil
	}
	if !p.Revealed && strings.Contains(body, inspect.Masked) {
		return c, fmt.Errorf("body has a masked value (%s) and was changed; show the secrets first, or write the "+
			"value", inspect.Masked)
	}
	c.Body = []byte(originalLines(body, p.Body))
	c.Header = bodyHeader(e, c.Header)
	return c, nil
}

func checkTarget(target string) error {
	switch {
	case strings.Contains(target, inspect.Masked):
		return fmt.Errorf("path has a masked value (%s) and was changed; show the secrets first, or write the value",
			inspect.Masked)
	case !strings.HasPrefix(target, "/") && target != "*":
		return fmt.Errorf("path %q does not begin with a slash; write it as in /path?query", shorten(target, 100))
	case strings.ContainsFunc(target, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return fmt.Errorf("path %q has a space or a control character; write %%20 for a space", shorten(target, 100))
	}
	return nil
}

// bodyHeader returns the header of a request whose body was edited as text: without the coding and
// the length of the body before.
func bodyHeader(e *inspect.Exchange, edited http.Header) http.Header {
	h := edited
	if h == nil {
		h = e.Request.Header
	}
	h = h.Clone()
	h.Del("Content-Encoding")
	h.Del("Content-Length")
	return h
}

// parseHeader reads a field a line.
func parseHeader(text string) (http.Header, error) {
	h := http.Header{}
	for i, line := range strings.Split(normalLines(text), "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || !httpguts.ValidHeaderFieldName(name) {
			return nil, fmt.Errorf("headers, line %d: %q is no field; write it as in Name: value", i+1,
				shorten(name, 40))
		}
		if !httpguts.ValidHeaderFieldValue(value) {
			return nil, fmt.Errorf("headers, line %d: the value of %s has a control character; remove it", i+1, name)
		}
		key := textproto.CanonicalMIMEHeaderKey(name)
		h[key] = append(h[key], value)
	}
	return h, nil
}

var lineFeeds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// normalLines returns a text with line feeds alone, as it was before the browser sent the form.
func normalLines(text string) string {
	return strings.TrimRight(lineFeeds.Replace(text), "\n")
}

// originalLines returns a text that a browser sent with the line ends of the text before.
func originalLines(sent, before string) string {
	if strings.Contains(before, "\r\n") {
		return sent
	}
	return lineFeeds.Replace(sent)
}
