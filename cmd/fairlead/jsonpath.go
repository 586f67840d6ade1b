// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"text/template"

	"github.com/theory/jsonpath"
)

// expression matches one in braces; braces within its quotes are none.
var expression = regexp.MustCompile(`\{((?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^{}"'])*)\}`)

// parseJSONPath returns a template of kubectl's -o jsonpath, which has text, and in braces paths,
// quoted text, range and end, as a template of Go.
func parseJSONPath(text string) (*template.Template, error) {
	var translated strings.Builder
	var paths []*jsonpath.Path
	after, open := 0, 0
	for _, at := range append(expression.FindAllStringSubmatchIndex(text, -1), nil) {
		plain := text[after:]
		if at != nil {
			plain, after = text[after:at[0]], at[1]
		}
		if strings.Contains(plain, "{") {
			return nil, fmt.Errorf("a brace or a quote in %q is not closed", plain)
		}
		_, _ = fmt.Fprintf(&translated, "{{%q}}", plain)
		if at == nil {
			break
		}
		action := strings.TrimSpace(text[at[2]:at[3]])
		path, isRange := strings.CutPrefix(action, "range ")
		switch {
		case action == "end":
			open--
		case strings.HasPrefix(action, `"`): // as in Go
		case strings.HasPrefix(action, "'"):
			action = `"` + strings.ReplaceAll(strings.Trim(action, "'"), `"`, `\"`) + `"`
		default:
			parsed, err := parsePath(path)
			if err != nil {
				return nil, err
			}
			action = fmt.Sprintf("show %d .", len(paths))
			if isRange {
				action, open = fmt.Sprintf("range find %d .", len(paths)), open+1
			}
			paths = append(paths, parsed)
		}
		_, _ = translated.WriteString("{{" + action + "}}")
		if open < 0 {
			break
		}
	}
	if open != 0 {
		return nil, errors.New("each {range …} needs an {end}")
	}
	find := func(path int, v any) []any { return paths[path].Select(v) }
	show := func(path int, v any) (string, error) { return joinValues(find(path, v)) }
	return template.New("jsonpath").Funcs(template.FuncMap{"find": find, "show": show}).Parse(translated.String())
}

// parsePath parses a path, which begins at the object or at the value of the range that it is in.
func parsePath(path string) (*jsonpath.Path, error) {
	rest := strings.TrimLeft(path, " $@")
	if rest != "" && rest[0] != '.' && rest[0] != '[' {
		return nil, fmt.Errorf("%q is no path, such as .url or .items[*].url", path)
	}
	return jsonpath.Parse("$" + rest)
}

// joinValues returns texts as they are, no null, and other values as JSON, with spaces between.
func joinValues(all []any) (string, error) {
	texts := make([]string, len(all))
	for i, v := range all {
		text, isText := v.(string)
		if !isText && v != nil {
			line, err := json.Marshal(v)
			if err != nil {
				return "", err
			}
			text = string(line)
		}
		texts[i] = text
	}
	return strings.Join(texts, " "), nil
}
