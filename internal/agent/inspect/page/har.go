// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
)

// maxHARBodies is the most bytes of bodies in one file; those after it are left out with a comment.
const maxHARBodies = 64 << 20

// The parts of an HTTP Archive 1.2.
type (
	harEntry struct {
		Started  string      `json:"startedDateTime"`
		Time     float64     `json:"time"` // milliseconds
		Request  harRequest  `json:"request"`
		Response harResponse `json:"response"`
		Cache    struct{}    `json:"cache"`
		Timings  harTimings  `json:"timings"`
		Comment  string      `json:"comment,omitempty"`
		// Messages are those of a WebSocket, as browsers export them.
		Messages []harMessage `json:"_webSocketMessages,omitempty"`
	}
	harMessage struct {
		Type   string  `json:"type"` // send or receive
		Time   float64 `json:"time"` // seconds since 1970
		Opcode int     `json:"opcode"`
		Data   string  `json:"data"` // in base64 if Opcode is 2
	}
	harRequest struct {
		Method      string     `json:"method"`
		URL         string     `json:"url"`
		Proto       string     `json:"httpVersion"`
		Cookies     []harField `json:"cookies"` // always empty: they are in the headers
		Headers     []harField `json:"headers"`
		Query       []harField `json:"queryString"`
		Body        *harBody   `json:"postData,omitempty"`
		HeadersSize int64      `json:"headersSize"`
		BodySize    int64      `json:"bodySize"`
	}
	harResponse struct {
		Status      int        `json:"status"`
		StatusText  string     `json:"statusText"`
		Proto       string     `json:"httpVersion"`
		Cookies     []harField `json:"cookies"` // always empty: they are in the headers
		Headers     []harField `json:"headers"`
		Content     harBody    `json:"content"`
		RedirectURL string     `json:"redirectURL"`
		HeadersSize int64      `json:"headersSize"`
		BodySize    int64      `json:"bodySize"`
	}
	harBody struct {
		Size     *int64     `json:"size,omitempty"` // a response's only
		MimeType string     `json:"mimeType"`
		Params   []harField `json:"params,omitempty"`
		Text     string     `json:"text"`
		Encoding string     `json:"encoding,omitempty"` // base64, or "" for text
		Comment  string     `json:"comment,omitempty"`
	}
	harField struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	harTimings struct {
		Send    float64 `json:"send"`
		Wait    float64 `json:"wait"`
		Receive float64 `json:"receive"`
	}
)

// exportOne answers with one exchange as an HTTP Archive; a POST has its secrets.
func (x *exports) exportOne(c *call, e *inspect.Exchange) error {
	return x.exportHAR(c, []string{e.ID})
}

// exportList answers with the exchanges of a list, the oldest first; a POST has their secrets.
func (x *exports) exportList(c *call) error {
	found := x.recorder.List(listQueryOf(c.r.URL.Query()).filter(0))
	ids := make([]string, 0, len(found))
	for _, e := range slices.Backward(found) {
		ids = append(ids, e.ID)
	}
	return x.exportHAR(c, ids)
}

// exportHAR writes an entry at a time, so that it holds one exchange in memory.
func (x *exports) exportHAR(c *call, ids []string) error {
	h := c.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Disposition", `attachment; filename="fairlead-`+time.Now().UTC().Format("20060102-150405")+
		`.har"`)
	h.Set("Content-Security-Policy", recordedPolicy)
	creator, err := json.Marshal(map[string]string{"name": "Fairlead", "version": x.version})
	if err != nil {
		return err
	}
	left, separator := int64(maxHARBodies), fmt.Sprintf(`{"log":{"version":"1.2","creator":%s,"entries":[`, creator)
	for _, id := range ids {
		e, ok := x.recorder.Get(id)
		if !ok {
			continue
		}
		mask := maskerOf(x.recorder, e, c.isPost())
		entry, err := json.Marshal(entryOf(e, mask, &left))
		if err != nil {
			x.logger.Error("exporting a request", "id", id, "error", err)
			continue
		}
		if !c.write(separator, string(entry)) {
			return nil // the browser is gone
		}
		separator = ","
	}
	if separator == "," {
		separator = ""
	}
	c.write(separator, "]}}\n")
	return nil
}

// write reports whether the browser takes the texts.
func (c *call) write(texts ...string) bool {
	for _, text := range texts {
		if _, err := io.WriteString(c.w, text); err != nil {
			return false
		}
	}
	return true
}

// entryOf returns an exchange as an entry; left is how many bytes of bodies may follow.
func entryOf(e *inspect.Exchange, mask *masker, left *int64) harEntry {
	milliseconds := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	entry := harEntry{Started: e.Start.Format(time.RFC3339Nano), Time: milliseconds(e.Duration)}
	first := min(max(e.FirstByte, 0), e.Duration)
	entry.Timings.Wait, entry.Timings.Receive = milliseconds(first), milliseconds(e.Duration-first)
	m := &mask.request
	entry.Request = harRequest{Method: m.Method, URL: curlURL(e, m), Proto: m.Proto, Cookies: []harField{},
		Headers: harFields(m.Header), Query: harQuery(m.URL), HeadersSize: -1, BodySize: m.BodySize}
	if len(e.Request.Body) > 0 {
		body := harBodyOf(&e.Request, mask, e.Raw, left)
		entry.Request.Body = &body
	}
	entry.Response = harResponse{Cookies: []harField{}, Headers: []harField{}, HeadersSize: -1, BodySize: -1,
		Content: harBody{Size: new(int64)}}
	if e.Response != nil {
		m := mask.response
		entry.Response = harResponse{Status: m.Status, StatusText: http.StatusText(m.Status), Proto: m.Proto,
			Cookies: []harField{}, Headers: harFields(m.Header), Content: harBodyOf(e.Response, mask, e.Raw, left),
			RedirectURL: m.Header.Get("Location"), HeadersSize: -1, BodySize: m.BodySize}
		entry.Response.Content.Size = new(m.BodySize)
	}
	entry.Comment, entry.Messages = mask.text(e.Error), harMessages(e, mask, left)
	return entry
}

// harMessages returns the messages of a WebSocket that the file has room for.
func harMessages(e *inspect.Exchange, mask *masker, left *int64) []harMessage {
	var messages []harMessage
	for _, f := range e.Frames {
		opcode := map[string]int{inspect.FrameText: 1, inspect.FrameBinary: 2}[f.Kind]
		if *left -= int64(len(f.Data)); opcode == 0 || *left < 0 {
			continue
		}
		data, _ := mask.body(frameType(f), f.Data)
		m := harMessage{Type: "receive", Time: float64(e.Start.Add(f.At).UnixMicro()) / 1e6, Opcode: opcode,
			Data: string(data)}
		if f.FromClient {
			m.Type = "send"
		}
		if opcode == 2 {
			m.Data = base64.StdEncoding.EncodeToString(data)
		}
		messages = append(messages, m)
	}
	return messages
}

// harFields returns the fields of a header in the order of their names.
func harFields(h http.Header) []harField {
	fields := []harField{}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[name] {
			fields = append(fields, harField{name, value})
		}
	}
	return fields
}

// harQuery returns the parameters of a URL; of a broken one as they stand.
func harQuery(target string) []harField {
	fields := []harField{}
	_, query, _ := strings.Cut(target, "?")
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" || len(fields) == maxFields {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(name); err == nil {
			name = plain
		}
		if plain, err := url.QueryUnescape(value); err == nil {
			value = plain
		}
		fields = append(fields, harField{name, value})
	}
	return fields
}

// harBodyOf returns a body without its content codings, in base64 if it is no text.
func harBodyOf(m *inspect.Message, mask *masker, raw bool, left *int64) harBody {
	contentType := m.Header.Get("Content-Type")
	b := harBody{MimeType: contentType}
	if raw && !mask.reveal {
		b.Comment = "Bytes that are not HTTP are exported only with secrets."
		return b
	}
	body := decodeBody(m)
	if !mask.reveal && isOpaque(m, body) {
		b.Comment = "The body is exported only with secrets, because the inspector cannot look for them in it. " +
			body.note
		return b
	}
	data, _ := mask.body(contentType, body.data)
	if *left -= int64(len(data)); *left < 0 {
		b.Comment = "The body was left out: the file has too many bytes of bodies already."
		return b
	}
	b.Text = string(data)
	if !utf8.Valid(data) {
		b.Text, b.Encoding = base64.StdEncoding.EncodeToString(data), "base64"
	}
	switch {
	case body.note != "":
		b.Comment = body.note
	case body.cut:
		b.Comment = "The body is longer than what is here."
	}
	return b
}
