// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/operators"
)

var (
	undeclared = regexp.MustCompile(`^undeclared reference to '([^']+)'`)
	noOverload = regexp.MustCompile(`^found no matching overload for '([^']+)' applied to '(.*)'$`)
	badToken   = regexp.MustCompile(
		`^Syntax error: (?:token recognition error at:|(?:extraneous|mismatched) input) '(.*?)'?$`)
	dotted = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*`)
)

// explainIssues reports CEL's messages about an expression.
func (p phase) explainIssues(issues []*cel.Error, text string, report func(msg string, position int)) {
	for _, e := range issues[:min(len(issues), maxIssuesPerOne)] {
		position := runeOffset(text, e.Location.Line(), e.Location.Column())
		msg, last := p.explainIssue(e.Message, text, position)
		if report(msg, position); last {
			return
		}
	}
}

// explainIssue rewords one of CEL's messages, with a remedy where one is known. last means that
// further messages about the same text follow from it.
func (p phase) explainIssue(msg, text string, position int) (explained string, last bool) {
	msg, _, _ = strings.Cut(msg, "\n")
	msg, _, _ = strings.Cut(msg, " expecting ")
	rest := string([]rune(text)[position:])
	if strings.Contains(msg, "recursion") {
		return fmt.Sprintf("the expression is nested too deeply, or a chain of operators in it is too long: "+
			"at most %d levels", maxNesting), false
	}
	if m := badToken.FindStringSubmatch(msg); m != nil {
		if remedy := explainToken(m[1], string([]rune(text)[:position])); remedy != "" {
			return remedy, true
		}
	}
	if m := noOverload.FindStringSubmatch(msg); m != nil {
		return explainTypes(m[1], m[2], msg), false
	}
	if m := undeclared.FindStringSubmatch(msg); m != nil {
		return p.explainName(m[1], rest), false
	}
	return msg, false
}

// explainToken returns the remedy for a character or word that is no operator of CEL, given the
// text before it; "" for others.
func explainToken(token, before string) string {
	switch word := strings.TrimSpace(token); {
	case strings.HasPrefix(word, "=~"):
		return "=~ is no operator: for a regular expression, write TEXT.matches('PATTERN')"
	case strings.HasPrefix(word, "=") && strings.HasSuffix(before, "=="):
		return "=== is no operator: to compare, write =="
	case strings.HasPrefix(word, "="):
		return "= is no operator: to compare, write =="
	case word == "&" || word == "and" || word == "AND":
		return word + " is no operator: write && where both sides have to be true"
	case word == "|" || word == "or" || word == "OR":
		return word + " is no operator: write || where one side has to be true"
	case word == ">" && strings.HasSuffix(before, "<"):
		return "<> is no operator: write !="
	case strings.HasPrefix(word, "\"") || strings.HasPrefix(word, "'"):
		return "the text that begins here is not closed by a quote"
	}
	return ""
}

// explainTypes explains that a function or operator does not take values of the types.
func explainTypes(function, of, msg string) string {
	symbol, isOperator := operators.FindReverse(function)
	const takeOne = "take one of them, such as req.headers['x-a'][0], or look for it with 'x' in req.headers['x-a']"
	switch {
	case function == operators.In && of == "(string, string)":
		return "in looks a value up in a list or map, such as req.method in ['GET', 'HEAD']; " +
			"for a part of a text, write TEXT.contains('PART')"
	case strings.Contains(of, "list(map(string, string))"):
		return "this is a list of cookies with the same name, and a cookie is a {name, value}: " +
			"write getReqCookie('NAME').value"
	case strings.Contains(of, "(map(string, string), string)") || strings.Contains(of, "(string, map(string, string))"):
		return "a map is compared with a text: of a cookie, write getReqCookie('NAME').value"
	case strings.Contains(of, "map(string, list(string))"):
		return "this is a map of names to lists of texts: " + takeOne
	case strings.Contains(of, "list(string)"):
		return "this is a list of texts, as a header or parameter may come several times: " + takeOne
	case isOperator && symbol != "" && strings.Contains(of, ", "):
		return fmt.Sprintf("%s does not take values of the types %s; "+
			"convert one, such as with int(), string() or timestamp()", symbol, of)
	case of == "(string)" && slices.Contains([]string{"lower", "lowerAscii", "upper", "upperAscii", "trim"}, function):
		return fmt.Sprintf("%s is called on a text: write TEXT.%s()", function, function)
	}
	return msg
}

// foreignNames are the names that other products' languages have for our groups of variables,
// longer ones first.
var foreignNames = []struct{ theirs, ours string }{
	{"http.request.", "req."}, {"http.response.", "res."}, {"request.", "req."}, {"response.", "res."},
	{"connection.", "conn."}, {"req.url_path", "req.url.path"}, {"source.address", "conn.client_ip"},
	{"source.ip", "conn.client_ip"}, {"remote_addr", "conn.client_ip"},
}

// explainName explains that a name is unknown. rest is the text from its position on.
func (p phase) explainName(name, rest string) string {
	chain := dotted.FindString(rest)
	if strings.HasPrefix(rest[len(chain):], "(") { // the last word is a function
		chain = chain[:max(strings.LastIndexByte(chain, '.'), 0)]
	}
	if name == "not" {
		return "not is no operator: write ! before what must not be true"
	}
	if first, _, _ := strings.Cut(chain, "."); chain == "" || first != name && name != chain {
		return fmt.Sprintf("%s is neither a variable nor a function that is known in %s", name, p)
	}
	given := ourName(chain)
	for _, v := range variables() {
		if (v.name == given || strings.HasPrefix(given, v.name+".")) && !slices.Contains(v.phases, p) {
			return fmt.Sprintf("%s is not known in %s", v.name, p)
		}
	}
	if meant := p.nearestVariable(given); meant != "" {
		return fmt.Sprintf("there is no variable %s; did you mean %s?", chain, meant)
	}
	for group := chain; group != ""; group = group[:max(strings.LastIndexByte(group, '.'), 0)] {
		if members := p.members(group); len(members) > 0 {
			return fmt.Sprintf("there is no variable %s; %s has %s", chain, group, strings.Join(members, ", "))
		}
	}
	return fmt.Sprintf("there is no variable %s in %s", chain, p)
}

// ourName translates the name of a variable of another product's language.
func ourName(chain string) string {
	given := strings.ToLower(chain)
	for _, f := range foreignNames {
		if rest, ok := strings.CutPrefix(given, f.theirs); ok {
			given = f.ours + rest
		}
	}
	return given
}

// nearestVariable returns the variable of this phase with the most similar name; "" when none is
// similar.
func (p phase) nearestVariable(given string) string {
	best, least := "", 2+(len(given)-strings.LastIndexByte(given, '.')-1)/8 // letters that differ
	for _, v := range variables() {
		if !slices.Contains(v.phases, p) {
			continue
		}
		if n := levenshtein(given, v.name); n < least {
			best, least = v.name, n
		}
	}
	return best
}

// members returns the names that can follow a group's name in this phase.
func (p phase) members(group string) []string {
	var names []string
	for _, v := range variableIndex().groups[group] {
		name, _, _ := strings.Cut(strings.TrimPrefix(v.name, group+"."), ".")
		if slices.Contains(v.phases, p) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
