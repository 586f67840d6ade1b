// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"encoding/json"
	"mime"
	"regexp"
	"strings"
	"unicode/utf8"
)

// The ways in which a text gives a value a name. Names and values in JSON that is within JSON have
// escaped quotes.
var (
	quotedValue = `(\\"[^"\\]*(?:\\[^"][^"\\]*)*(?:\\"|\z)|"(?:[^"\\]|\\[\s\S])*(?:"|\z)|'(?:[^'\\\n]|\\.)*'|` +
		`-?[0-9][0-9.eE+-]*|\[\s*"(?:[^"\\]|\\.)*"(?:\s*,\s*"(?:[^"\\]|\\.)*")*\s*(?:\]|\z))`
	// assignment is a member of JSON, an argument of GraphQL, an attribute of XML, or a setting with
	// quotes.
	assignment = regexp.MustCompile(
		`("(?:[^"\\]|\\.)+"|\\"[^"\\]+\\"|'[^'\n]+'|[A-Za-z_][\w.-]*)(\s*[:=]\s*)` + quotedValue)
	// pair is a name and a value in members of their own.
	pair = regexp.MustCompile(`(\b(?:name|key|field)\b["']?\s*[:=]\s*["']?)([\w.-]+)` +
		`(["']?[\s,]*["']?\bvalue["']?\s*[:=]\s*)(?:` + quotedValue + `|([^\s"'<>{}\[\],]+))`)
	// parameter is one of a query, form or connection string, or a word of a log.
	parameter = regexp.MustCompile(`(^|[?&;#\s,"'|(])([^=&;#?\s<>"'\\,|(:]+)=([^&;#\s<>"'\\]+)`)
	// element is one of XML with text.
	element = regexp.MustCompile(`(<(?:[\w-]+:)?([A-Za-z_][\w.-]*)(?:\s[^<>]*)?>\s*)` +
		`(?:(<!\[CDATA\[)([\s\S]*?)(\]\]>)|([^<]+))`)
	// tag has a name and a value in attributes of their own.
	tag      = regexp.MustCompile(`<[A-Za-z][^<>]*>`)
	tagName  = regexp.MustCompile(`\b(?:name|key|id|property)\s*=\s*["']?([^\s"'<>]+)`)
	tagValue = regexp.MustCompile(`(\b(?:value|content)\s*=\s*)(?:(")([^"]+)(")|(')([^']+)(')|()([^\s"'<>]+)())`)
	// line is a setting without quotes, as in YAML, TOML, .env or the header of a message; flow is one
	// within the braces of YAML.
	line = regexp.MustCompile(`(?m)^([ \t]*(?:data: ?|- |export |set )?[ \t]*)([A-Za-z_][\w.-]*)([ \t]*[:=][ \t]*)` +
		`([^\s"'{|>#*][^\r\n]*)`)
	flow = regexp.MustCompile(`([{,][ \t]*)([A-Za-z_][\w.-]*)(:[ \t]+)([^\s"'\[{,}][^,}\r\n]*)`)
	// blockName begins a block or list of YAML.
	blockName = regexp.MustCompile(`^([ \t]*(?:- )*)([A-Za-z_][\w.-]*):[ \t]*(?:[|>][-+0-9]*)?[ \t]*\r?$`)
	blockLine = regexp.MustCompile(`^([ \t]*(?:- )?)(.*?)(\r?)$`)
)

// Kinds of texts, by what else they may have than quoted values.
const (
	kindSettings = iota // lines of settings
	kindData            // JSON, XML, GraphQL: no lines
	kindCode            // HTML, scripts, style sheets: an assignment without quotes is no secret
)

// textKind returns the kind of a body; ok is false for one that is no text.
func textKind(mediaType, body string) (kind int, ok bool) {
	switch main, sub, _ := strings.Cut(mediaType, "/"); {
	case main == "image" || main == "audio" || main == "video" || main == "font", !utf8.ValidString(body):
		return 0, false
	case strings.Contains(sub, "html"), strings.Contains(sub, "script"), sub == "css":
		return kindCode, true
	case strings.HasSuffix(sub, "json"), strings.HasSuffix(sub, "xml"), sub == "graphql",
		strings.HasPrefix(strings.TrimSpace(body), "<"), looksLikeJSON(body):
		return kindData, true
	}
	return kindSettings, true
}

func looksLikeJSON(body string) bool {
	body = strings.TrimSpace(body)
	return len(body) > 1 && (body[0] == '{' || body[0] == '[')
}

// multipartName is the name of a part of a form; its value is what follows the empty line.
var multipartName = regexp.MustCompile(`(?is)(content-disposition:[^\r\n]*\bname="?([^"\r\n;]*)[^\r\n]*` +
	`(?:\r?\n[^\r\n]+)*\r?\n\r?\n)(.*?)(\r?\n--|$)`)

// body masks secrets in a body that has no Content-Encoding, or was decoded.
func (p *masking) body(contentType, body string) string {
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		mediaType, _, _ = strings.Cut(strings.ToLower(contentType), ";")
		mediaType = strings.TrimSpace(mediaType)
	}
	switch mediaType {
	case "application/x-www-form-urlencoded":
		return p.shaped(p.parameters(body, true))
	case "multipart/form-data":
		return replaceMatches(multipartName, body, func(m []string) string {
			if p.isSecret(m[2]) || loginNames[m[2]] {
				return m[1] + p.hide(m[3]) + m[4]
			}
			return m[1] + p.body("", m[3]) + m[4]
		})
	}
	kind, ok := textKind(mediaType, body)
	switch {
	case ok:
		return p.text(body, kind)
	case strings.HasPrefix(mediaType, "application/"), mediaType == "":
		return p.shaped(body)
	}
	return body
}

// text masks the secrets of a text.
func (p *masking) text(text string, kind int) string {
	text = p.assigned(text)
	if !strings.Contains(text, "<") {
		return p.textWithoutTags(text, kind)
	}
	text = replaceMatches(element, text, func(m []string) string {
		if !p.isSecret(m[2]) || strings.TrimSpace(m[4]+m[6]) == "" {
			return m[0]
		}
		return m[1] + m[3] + p.hide(m[4]) + m[5] + p.hide(m[6])
	})
	text = replaceMatches(tag, text, func(m []string) string {
		name := tagName.FindStringSubmatch(m[0])
		if name == nil || !p.isSecret(name[1]) {
			return m[0]
		}
		return replaceMatches(tagValue, m[0], func(v []string) string {
			return v[1] + v[2] + p.hide(v[3]) + v[4] + v[5] + p.hide(v[6]) + v[7] + p.hide(v[9])
		})
	})
	return p.textWithoutTags(text, kind)
}

func (p *masking) textWithoutTags(text string, kind int) string {
	if strings.Contains(text, "value") {
		text = replaceMatches(pair, text, func(m []string) string {
			if !p.isSecret(m[2]) {
				return m[0]
			}
			return m[1] + m[2] + m[3] + p.hideQuoted(m[4], m[3]) + p.hide(m[5])
		})
	}
	if kind == kindSettings {
		text = p.lines(text)
	}
	return p.shaped(p.parameters(text, kind != kindCode))
}

// assigned masks the values of assignments. It looks into the values of others: JSON may hold JSON,
// or a query.
func (p *masking) assigned(text string) string {
	return replaceMatches(assignment, text, func(m []string) string {
		name, value := strings.Trim(m[1], `\"'`), m[3]
		isNumber := value[0] == '-' || value[0] >= '0' && value[0] <= '9'
		switch {
		case p.isSecret(name) && (!isNumber || !isPluralName(name)):
			return m[1] + m[2] + p.hideQuoted(value, m[1])
		case isNumber:
			return m[0]
		case value[0] == '\\':
			return m[1] + m[2] + value[:2] + p.assigned(value[2:])
		}
		return m[1] + m[2] + value[:1] + p.assigned(value[1:])
	})
}

// quoted is a string of a list.
var quoted = regexp.MustCompile(`"((?:[^"\\]|\\.)*)"`)

// hideQuoted masks a value that assignment matches, and keeps its quotes. A number gets some where
// its name has them.
func (p *masking) hideQuoted(value, name string) string {
	switch {
	case value == "":
		return ""
	case value[0] == '[':
		return replaceMatches(quoted, value, func(m []string) string { return `"` + p.hideJSON(m[1]) + `"` })
	case value[0] == '"':
		return `"` + p.hideJSON(strings.TrimSuffix(value[1:], `"`)) + `"`
	case value[0] == '\\':
		return `\"` + p.hide(strings.TrimSuffix(value[2:], `\"`)) + `\"`
	case value[0] == '\'':
		return "'" + p.hide(strings.Trim(value, "'")) + "'"
	case strings.Contains(name, `"`):
		return `"` + p.hide(value) + `"`
	}
	return p.hide(value)
}

// hideJSON is hide for the inside of a JSON string.
func (p *masking) hideJSON(inside string) string {
	var plain string
	if json.Unmarshal([]byte(`"`+inside+`"`), &plain) == nil && plain != inside {
		p.hide(plain)
	}
	return p.hide(inside)
}

// lines masks settings without quotes: one on a line, and blocks and lists of YAML below a name.
func (p *masking) lines(text string) string {
	edit := func(m []string) string {
		value := strings.TrimSpace(m[4])
		isCount := isPluralName(m[2]) && strings.Trim(value, "0123456789") == ""
		if !p.isSecret(m[2]) || isCount || value == "true" || value == "false" || value == "null" || value == "~" {
			return m[0]
		}
		return m[1] + m[2] + m[3] + p.hide(value)
	}
	text = replaceMatches(flow, replaceMatches(line, text, edit), edit)
	if !strings.Contains(text, ":") {
		return text
	}
	all := strings.Split(text, "\n")
	indent, within := 0, false
	for i, one := range all {
		depth := len(one) - len(strings.TrimLeft(one, " \t"))
		if within && (depth > indent || depth == indent && strings.HasPrefix(one[depth:], "- ")) {
			m := blockLine.FindStringSubmatch(one)
			all[i] = m[1] + p.hide(m[2]) + m[3]
			continue
		}
		if within && strings.TrimSpace(one) == "" {
			continue
		}
		m := blockName.FindStringSubmatch(one)
		if within = m != nil && p.isSecret(m[2]); within {
			indent = len(m[1])
		}
	}
	return strings.Join(all, "\n")
}

// parameters masks the parameters of a query or form, and with all of them also those that no
// separator of a query precedes.
func (p *masking) parameters(text string, all bool) string {
	if !strings.Contains(text, "=") {
		return text
	}
	return replaceMatches(parameter, text, func(m []string) string {
		name := strings.NewReplacer("%5b", "[", "%5d", "]").Replace(strings.ToLower(m[2]))
		name = strings.TrimSuffix(name[strings.LastIndexByte(name, '[')+1:], "]")
		isQuery := m[1] != "" && strings.Contains("?&;#", m[1])
		if !isQuery && !all {
			return m[0]
		}
		if !p.isSecret(m[2]) && !p.isSecret(name) &&
			(!loginNames[name] || !isQuery && m[1] != "" || isOrdinary(name, m[3])) {
			return m[0]
		}
		return m[1] + m[2] + "=" + p.hide(m[3])
	})
}

var ordinaryState = regexp.MustCompile(`^[A-Za-z_+-]{1,12}$`)

// isOrdinary reports whether the state of a query is a word such as "open", and none of a login.
func isOrdinary(name, value string) bool { return name == "state" && ordinaryState.MatchString(value) }
