// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// inputKind is how the form shows a field.
type inputKind string

const (
	inputLine     inputKind = "line"
	inputText     inputKind = "text" // several lines
	inputPolicy   inputKind = "policy"
	inputChoice   inputKind = "choice"
	inputFlag     inputKind = "flag"     // its value is flagOn or ""
	inputChildren inputKind = "children" // its value is one ID a line, in their order
	inputWeights  inputKind = "weights"  // its value is one ID=WEIGHT a line
)

const (
	flagOn       = "true"
	weightSuffix = ".weight" // ends the name of a child's weight input
)

// values are the texts of a form by the names of its fields.
type values map[string]string

// field is one field of a form. Its name is that of the API.
type field struct {
	Name, Label, Hint, Placeholder string
	Kind                           inputKind
	Rows                           int               // lines of inputText
	Groups                         []choiceGroup     // choices of inputChoice, inputChildren and inputWeights
	None                           string            // the text of the empty choice; "" = there is none
	Numeric                        bool              // a phone shows digits
	names                          map[string]string // texts of choices by value, for display
}

// choiceGroup are options of a select that belong together.
type choiceGroup struct {
	Name    string
	Choices []choice
}

// sent returns the value of the field in a form that was sent.
func (f field) sent(form url.Values) string {
	given := strings.ReplaceAll(form.Get(f.Name), "\r\n", "\n")
	switch f.Kind {
	case inputFlag:
		if given != "" {
			return flagOn
		}
		return ""
	case inputChildren:
		given := slices.DeleteFunc(slices.Clone(form[f.Name]), func(id string) bool { return id == "" })
		return strings.Join(given, "\n")
	case inputWeights:
		var lines []string
		weights := form[f.Name+weightSuffix]
		for i, id := range form[f.Name] {
			if id != "" && i < len(weights) {
				lines = append(lines, id+"="+strings.TrimSpace(weights[i]))
			}
		}
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	case inputPolicy:
		if strings.TrimSpace(given) == "" {
			return ""
		}
	}
	return given
}

// display returns a value as people read it in a diff.
func (f field) display(value string) string {
	name := func(id string) string { return cmp.Or(f.names[id], id) }
	switch f.Kind {
	case inputFlag:
		if value == flagOn {
			return "yes"
		}
		return "no"
	case inputChoice:
		return name(value)
	case inputChildren, inputWeights:
		lines := splitLines(value)
		for i, line := range lines {
			id, weight, weighted := strings.Cut(line, "=")
			if lines[i] = name(id); weighted {
				lines[i] += ": " + weight
			}
		}
		return strings.Join(lines, "\n")
	}
	return value
}

// setGroups returns the fields with the choices of the one with the name, and their names for display.
func setGroups(fields []field, name string, groups []choiceGroup) []field {
	at := slices.IndexFunc(fields, func(f field) bool { return f.Name == name })
	fields[at].Groups, fields[at].names = groups, map[string]string{}
	for _, g := range groups {
		for _, one := range g.Choices {
			fields[at].names[one.Value] = one.Text
		}
	}
	return fields
}

// fieldView is a field of a form as a template shows it.
type fieldView struct {
	field
	Value   string
	Problem string
	Members []memberView // rows of inputChildren and inputWeights
	Policy  *policyView  // set for inputPolicy
	Unknown bool         // the value of inputChoice is none of the choices
}

// memberView is a child in a form, or a row for one more.
type memberView struct {
	Number     int // from 1
	Field      string
	ID, Weight string
	Weighted   bool
	Unknown    bool // there is no backend with the ID
	Groups     []choiceGroup
	Problem    string // the ID of the element that tells the problem of the field; "" = none
}

// emptyMembers is how many rows for further children a form has.
const emptyMembers = 2

func (f field) view(value, problem string, more int) fieldView {
	v := fieldView{field: f, Value: value, Problem: problem}
	v.Unknown = f.Kind == inputChoice && f.names != nil && value != "" && f.names[value] == ""
	if f.Kind != inputChildren && f.Kind != inputWeights {
		return v
	}
	lines := splitLines(value)
	total := min(max(len(lines)+emptyMembers+more, 4), max(account.MaxBackendChildren, len(lines)))
	for i := range total {
		m := memberView{Number: i + 1, Field: f.Name, Weighted: f.Kind == inputWeights, Groups: f.Groups}
		if i < len(lines) {
			m.ID, m.Weight, _ = strings.Cut(lines[i], "=")
			m.Unknown = f.names[m.ID] == ""
		}
		if problem != "" {
			m.Problem = f.Name + "-problem"
		}
		v.Members = append(v.Members, m)
	}
	return v
}

// formProblems are what is wrong with a form: by field, of none, and in the traffic policy.
type formProblems struct {
	byField  map[string]string
	general  string
	findings []finding
}

// problemsOf returns the problems that an error names. ok is false for an error that is not about
// what the form has sent.
func problemsOf(err error, fields []field) (p formProblems, ok bool) {
	var known *account.Error
	about := []account.Code{account.CodeInvalid, account.CodeLimit, account.CodeURLTaken, account.CodeInUse}
	if !errors.As(err, &known) || !slices.Contains(about, known.Code) {
		return p, false
	}
	p.byField = map[string]string{}
	for _, broken := range known.Fields {
		name := fieldOf(broken.Field, fields)
		switch name {
		case "":
			p.general = strings.TrimSpace(p.general + " " + sentence(broken.String()))
		case policyField:
			p.findings = append(p.findings, findingOf(broken))
		default:
			p.byField[name] = strings.TrimSpace(p.byField[name] + " " + problemText(name, broken))
		}
	}
	if len(known.Fields) == 0 {
		p.general = sentence(known.Msg)
	}
	return p, true
}

// fieldOf returns the name of the field of a form that a field of an error belongs to, "" for none:
// "backends" for "backends[2]", "headers" for "headers.X-Test".
func fieldOf(name string, fields []field) string {
	name, _, _ = strings.Cut(name, "[")
	for name != "" {
		if slices.ContainsFunc(fields, func(f field) bool { return f.Name == name }) {
			return name
		}
		name = name[:max(strings.LastIndexByte(name, '.'), 0)]
	}
	return ""
}

// problemText is the sentence about a broken rule: with the value, where it is one of several.
func problemText(field string, broken account.FieldError) string {
	what := broken.Value
	if rest, ok := strings.CutPrefix(broken.Field, field+"."); ok {
		what = rest
	} else if broken.Field == field && field != "backends" && field != "labels" && field != "headers" {
		what = ""
	}
	if what == "" || what == account.NotShown {
		return sentence(broken.Rule)
	}
	return "“" + what + "” " + strings.TrimSuffix(broken.Rule, ".") + "."
}
