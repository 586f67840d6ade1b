// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"mime"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
)

const (
	maxText     = 512 << 10 // bytes of a text that a page shows
	maxPartText = 64 << 10  // bytes of a text in a part of a multipart body
	maxHex      = 8 << 10   // bytes that a page shows in hexadecimal
	maxFields   = 500       // fields of a form
	maxValue    = 16 << 10  // bytes of the value of a header or of a form's field
)

// Kinds of content.
const (
	kindText      = "text"
	kindJSON      = "json"
	kindForm      = "form"
	kindMultipart = "multipart"
	kindImage     = "image"
	kindHex       = "hex"
)

// content is a body, or a part of one, as a page shows it.
type content struct {
	Kind   string // "" = it is empty
	Type   string // the Content-Type
	Text   string // the content as kindText, kindJSON or kindHex
	Fields []field
	Parts  []part
	Image  *picture
	Notes  []string
	Masked bool // secrets of headers are masked in it
	Label  string
}

// field is a name and a value of a form.
type field struct{ Name, Value string }

func (c *content) note(format string, args ...any) {
	c.Notes = append(c.Notes, fmt.Sprintf(format, args...))
}

// renderBody returns the body of a message as a page shows it. Its picture is at imagePath.
func renderBody(m *inspect.Message, mask *masker, label, imagePath string) content {
	body := decodeBody(m)
	c := render(body.data, m.Header.Get("Content-Type"), body.cut, mask, imagePath, 0)
	c.Label = label
	if body.note != "" {
		c.Notes = append([]string{body.note}, c.Notes...)
	}
	switch {
	case m.Truncated:
		c.note("Of %s, the first %s were kept.", formatSize(m.BodySize), formatSize(int64(len(m.Body))))
	case body.cut:
		c.note("The body was decoded up to %s; it is longer.", formatSize(maxDecoded))
	}
	if len(body.codings) > 0 {
		c.note("Decoded from %s: %s became %s.", strings.Join(body.codings, ", "), formatSize(int64(len(m.Body))),
			formatSize(int64(len(body.data))))
	}
	return c
}

// render returns data of a Content-Type as a page shows it; cut tells that there was more of it.
func render(data []byte, contentType string, cut bool, mask *masker, imagePath string, depth int) content {
	c := content{Type: shorten(contentType, 200)}
	if len(data) == 0 {
		return c
	}
	mediaType, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		mediaType = strings.ToLower(strings.TrimSpace(strings.Split(contentType, ";")[0]))
	}
	if c.Image = pictureOf(data, imagePath); c.Image != nil && !cut {
		c.Kind = kindImage
		return c
	}
	c.Image = nil
	plain, hidden := mask.body(contentType, data)
	c.Masked = hidden
	if strings.HasPrefix(mediaType, "multipart/") {
		if parts, notes := partsOfBody(plain, params["boundary"], cut, mask, imagePath, depth); len(parts) > 0 {
			c.Kind, c.Parts, c.Notes = kindMultipart, parts, notes
			return c
		}
		c.note("Content-Type is multipart, but the body has no parts of it; it is shown as it is.")
	}
	text, isText := textOf(plain, mediaType, params["charset"], cut)
	switch {
	case !isText:
		c.Kind, c.Text = kindHex, hexDump(plain)
		if len(plain) > maxHex {
			c.note("Shown are the first %s of %s.", formatSize(maxHex), formatSize(int64(len(plain))))
		}
	case mediaType == "application/x-www-form-urlencoded" && c.addFields(text):
		c.Kind = kindForm
	default:
		limit := maxText
		if depth > 0 {
			limit = maxPartText
		}
		c.addText(text, mediaType, cut, limit)
	}
	return c
}

// addText shows the first limit bytes of a text, indented if it is JSON.
func (c *content) addText(text, mediaType string, cut bool, limit int) {
	c.Kind, c.Text = kindText, text
	if looksLikeJSON(text, mediaType) {
		switch {
		case json.Valid([]byte(text)):
			c.Kind, c.Text = kindJSON, indentJSON(text, limit+1)
		case (mediaType == "application/json" || strings.HasSuffix(mediaType, "+json")) && !cut:
			c.note("Content-Type is JSON, but the body is not; it is shown as it is.")
		}
	}
	if len(c.Text) > limit {
		c.Text = strings.ToValidUTF8(c.Text[:limit], "")
		c.note("Shown are the first %s; download the body for all of it.", formatSize(int64(limit)))
	}
}

func looksLikeJSON(text, mediaType string) bool {
	start := strings.TrimLeft(text, " \t\r\n")
	return strings.Contains(mediaType, "json") || start != "" && (start[0] == '{' || start[0] == '[')
}

// addFields shows the fields of a form, and reports whether the text is one.
func (c *content) addFields(text string) bool {
	var fields []field
	for pair := range strings.SplitSeq(strings.TrimSpace(text), "&") {
		if pair == "" {
			continue
		}
		if len(fields) == maxFields {
			c.note("Shown are the first %d fields.", maxFields)
			break
		}
		name, value, _ := strings.Cut(pair, "=")
		plainName, err := url.QueryUnescape(name)
		plainValue, err2 := url.QueryUnescape(value)
		if err != nil || err2 != nil {
			c.note("Content-Type is a form, but the body is not; it is shown as it is.")
			return false
		}
		fields = append(fields, field{printText(shorten(plainName, maxValue)),
			printText(shorten(plainValue, maxValue))})
	}
	c.Fields = fields
	return len(fields) > 0
}

// printText returns the text if it is one, and otherwise an escaped form of it.
func printText(text string) string {
	if utf8.ValidString(text) && !strings.ContainsRune(text, 0) {
		return text
	}
	return fmt.Sprintf("%q", text)
}

// textOf returns data as UTF-8, and reports whether it is text. Data that was cut may end within a
// character.
func textOf(data []byte, mediaType, charset string, cut bool) (string, bool) {
	trimmed := bytes.TrimPrefix(data, []byte("\ufeff"))
	switch strings.ToLower(charset) {
	case "iso-8859-1", "latin1", "us-ascii", "windows-1252":
		if !utf8.Valid(trimmed) {
			return latin1(data), true
		}
	}
	for i := 0; cut && i < utf8.UTFMax-1; i++ {
		if r, size := utf8.DecodeLastRune(trimmed); r == utf8.RuneError && size == 1 {
			trimmed = trimmed[:len(trimmed)-1]
		}
	}
	if utf8.Valid(trimmed) && mostlyPrintable(trimmed) {
		return string(trimmed), true
	}
	if strings.HasPrefix(mediaType, "text/") && bytes.IndexByte(data, 0) < 0 && mostlyPrintable(data) {
		return latin1(data), true
	}
	return "", false
}

func latin1(data []byte) string {
	runes := make([]rune, len(data))
	for i, b := range data {
		runes[i] = rune(b)
	}
	return string(runes)
}

// mostlyPrintable reports whether data has no NUL and few other control characters.
func mostlyPrintable(data []byte) bool {
	controls := 0
	for _, b := range data {
		switch {
		case b == 0:
			return false
		case b < ' ' && !strings.ContainsRune("\t\n\v\f\r\x1b", rune(b)):
			controls++
		}
	}
	return controls*20 <= len(data)
}

// hexDump returns the first maxHex bytes in hexadecimal, with their ASCII characters beside them.
func hexDump(data []byte) string {
	return strings.TrimSuffix(hex.Dump(data[:min(len(data), maxHex)]), "\n")
}

// maxIndent is the nesting from which JSON is no longer indented further: ten thousand brackets
// would make a page of their own size squared.
const maxIndent = 40

// indentJSON indents valid JSON by two spaces and stops after limit bytes. Numbers, the order of
// members, and duplicates stay as they are.
func indentJSON(text string, limit int) string {
	var b strings.Builder
	depth := 0
	newline := func() {
		b.WriteByte('\n')
		b.WriteString(strings.Repeat("  ", min(depth, maxIndent)))
	}
	for i := 0; i < len(text) && b.Len() < limit; i++ {
		switch ch := text[i]; ch {
		case ' ', '\t', '\r', '\n':
		case '"':
			end := endOfString(text, i)
			b.WriteString(text[i:min(end, i+limit)])
			i = end - 1
		case '{', '[':
			b.WriteByte(ch)
			next := i + 1 + leadingSpace(text[i+1:])
			if next < len(text) && (text[next] == '}' || text[next] == ']') {
				b.WriteByte(text[next])
				i = next
				continue
			}
			depth++
			newline()
		case '}', ']':
			depth--
			newline()
			b.WriteByte(ch)
		case ',':
			b.WriteByte(ch)
			newline()
		case ':':
			b.WriteString(": ")
		default:
			b.WriteByte(ch)
		}
	}
	return b.String()
}

// endOfString returns the index behind the string literal that begins at start.
func endOfString(text string, start int) int {
	for i := start + 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

func leadingSpace(text string) int { return len(text) - len(strings.TrimLeft(text, " \t\r\n")) }
