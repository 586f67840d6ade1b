// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"go.yaml.in/yaml/v3"
)

// Bounds of a document's tree once its aliases are followed.
const (
	maxNodes = 10_000
	maxDepth = 32
)

// phase is a point in the life of a connection at which rules run.
type phase int

const (
	onTCPConnect phase = iota
	onHTTPRequest
	onHTTPResponse
	phases
)

// Sets of phases: those in which an action may run, or a variable can be read.
var (
	allPhases          = []phase{onTCPConnect, onHTTPRequest, onHTTPResponse}
	connectAndRequest  = []phase{onTCPConnect, onHTTPRequest}
	requestPhase       = []phase{onHTTPRequest}
	requestAndResponse = []phase{onHTTPRequest, onHTTPResponse}
	responsePhase      = []phase{onHTTPResponse}
)

// String returns the phase's name in documents.
func (p phase) String() string {
	return [phases]string{"on_tcp_connect", "on_http_request", "on_http_response"}[p]
}

// formerKeys are names of phases and fields in older documents, with hints.
var formerKeys = map[string]string{
	"inbound":  "its name is on_http_request (on_tcp_connect for a tcp endpoint)",
	"outbound": "its name is on_http_response",
	"enabled":  "a policy that is set is in force: leave the key out",
}

// compiler compiles one document to a policy and collects its problems.
type compiler struct {
	policy   *Policy
	lines    lines
	problems []Problem

	phase          phase // the phase of the rule that is being read
	expressions    int
	cost           uint64
	limiters       int
	loginNode      *yaml.Node // the config of the login action
	loginNamespace string     // the namespace of what it finds out
	reads          resultReads
	nodes          int
}

func (c *compiler) problem(n *yaml.Node, value, format string, args ...any) {
	c.problems = append(c.problems, Problem{Line: n.Line, Column: n.Column, Value: truncate(value),
		Msg: fmt.Sprintf(format, args...)})
}

// problemAt is problem for a character of a scalar's value.
func (c *compiler) problemAt(n *yaml.Node, offset int, value, format string, args ...any) {
	line, column := c.lines.position(n, offset)
	c.problems = append(c.problems, Problem{line, column, truncate(value), fmt.Sprintf(format, args...)})
}

func newProblem(line, column int, format string, args ...any) *Problem {
	return &Problem{Line: line, Column: column, Msg: fmt.Sprintf(format, args...)}
}

func truncate(s string) string {
	const most = 80
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

func (c *compiler) compileDocument(text string) *Problem {
	if len(text) > MaxBytes {
		return newProblem(1, 1, "the document has %d bytes, at most %d are allowed", len(text), MaxBytes)
	}
	text = fromJSON(text)
	c.lines = lineBreak.Split(text, -1)
	if o := c.policy.options; !slices.Contains([]string{"", "http", "https", "tcp"}, o.Scheme) ||
		!slices.Contains([]string{"", "kubernetes", "internal", "public"}, o.Binding) {
		return newProblem(1, 1, "there is no traffic policy for an endpoint of scheme %q and binding %q", o.Scheme,
			o.Binding)
	}
	root, problem := parse(text)
	if problem != nil {
		return c.lines.explainTab(problem)
	}
	if root == nil {
		return nil
	}
	root, problem = c.resolve(root, 0)
	if problem != nil {
		return problem
	}
	if root.Tag == "!!null" {
		return nil
	}
	c.compileRoot(root)
	c.problems = append(c.problems, c.reads.check(c.loginNamespace, c.loginNode)...)
	if len(c.problems) == 0 {
		c.summarize(root)
	}
	return nil
}

// lineBreak matches the end of a line in YAML.
var lineBreak = regexp.MustCompile("\r\n|[\n\r\u0085\u2028\u2029]")

// fromJSON rewrites escapes of JSON that YAML lacks: \/ and pairs of surrogates.
func fromJSON(text string) string {
	if !strings.HasPrefix(strings.TrimSpace(text), "{") || !strings.Contains(text, `\`) || !json.Valid([]byte(text)) {
		return text
	}
	return jsonEscape.ReplaceAllStringFunc(text, func(escape string) string {
		switch {
		case escape == `\/`:
			return "/"
		case len(escape) < 12:
			return escape
		}
		high, _ := strconv.ParseUint(escape[2:6], 16, 16)
		low, _ := strconv.ParseUint(escape[8:12], 16, 16)
		return fmt.Sprintf(`\U%08x`, utf16.DecodeRune(rune(high), rune(low)))
	})
}

// jsonEscape matches every escape, so that an escaped backslash does not pass for the start of one.
var jsonEscape = regexp.MustCompile(`\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|.)`)

var yamlLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)

// parse reads the one document of a text; it returns nil for an empty one.
func parse(text string) (*yaml.Node, *Problem) {
	dec := yaml.NewDecoder(strings.NewReader(text))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, syntaxProblem(err)
	}
	if err := dec.Decode(&second); err == nil {
		return nil, newProblem(second.Line, 1, "a second document begins here; a policy is one document")
	} else if !errors.Is(err, io.EOF) {
		return nil, syntaxProblem(err)
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, nil
	}
	return doc.Content[0], nil
}

func syntaxProblem(err error) *Problem {
	msg, line := strings.TrimPrefix(err.Error(), "yaml: "), 0
	if m := yamlLine.FindStringSubmatch(msg); m != nil {
		line, _ = strconv.Atoi(m[1])
		msg = msg[len(m[0]):]
	}
	// the parser's lines, unlike the scanner's, count from 0, and are those of a beginning
	if strings.HasPrefix(msg, "did not find expected") {
		line++
		msg += ", in the list or mapping that begins here"
	}
	return newProblem(max(line, 1), 1, "this is neither YAML nor JSON: %s", msg)
}

// resolve copies a tree with its aliases followed, and bounds it: a few lines of YAML can stand for
// billions of nodes, or for a tree that contains itself.
func (c *compiler) resolve(n *yaml.Node, depth int) (*yaml.Node, *Problem) {
	if c.nodes++; c.nodes > maxNodes || depth > maxDepth {
		return nil, newProblem(n.Line, n.Column, "the document has more than %d values with its aliases followed, or "+
			"goes deeper than %d levels", maxNodes, maxDepth)
	}
	if n.Kind == yaml.AliasNode {
		return c.resolve(n.Alias, depth+1)
	}
	out := *n
	out.Tag = n.ShortTag()
	out.Content = make([]*yaml.Node, len(n.Content))
	for i, child := range n.Content {
		var problem *Problem
		if out.Content[i], problem = c.resolve(child, depth+1); problem != nil {
			return nil, problem
		}
	}
	return &out, nil
}

func (c *compiler) compileRoot(n *yaml.Node) {
	o := c.mapping(n, "a policy")
	if o == nil {
		return
	}
	for p := range phases {
		value := o.get(p.String())
		if value == nil || value.Tag == "!!null" {
			continue
		}
		if c.policy.options.Scheme == "tcp" && p != onTCPConnect {
			c.problem(o.keys[p.String()], p.String(),
				"a tcp endpoint is never parsed as HTTP, so %s cannot run; use on_tcp_connect", p)
			continue
		}
		c.phase = p
		c.compileRules(value)
	}
	o.reportUnknown(formerKeys)
}

func (c *compiler) compileRules(n *yaml.Node) {
	if !c.isList(n, c.phase.String(), "rules") {
		return
	}
	for _, item := range n.Content {
		if c.policy.summary.Rules++; c.policy.summary.Rules > maxRules {
			c.problem(item, "", "a policy has at most %d rules", maxRules)
			return
		}
		if r, ok := c.compileRule(item); ok {
			c.policy.rules[c.phase] = append(c.policy.rules[c.phase], r)
		}
	}
}

// summarize fills in the summary and facts of the policy. The digest is of the canonical form: keys
// sorted, empty values left out.
func (c *compiler) summarize(root *yaml.Node) {
	p := c.policy
	seen := map[string]bool{}
	for ph := range phases {
		if len(p.rules[ph]) > 0 {
			p.summary.Phases = append(p.summary.Phases, ph.String())
		}
		for _, r := range p.rules[ph] {
			for _, a := range r.actions {
				seen[a.actionType.name] = true
				switch f := a.action.(type) {
				case *forwardBackend:
					p.facts.Backends = append(p.facts.Backends, f.id)
				case *forwardInternal:
					p.facts.InternalHosts = append(p.facts.InternalHosts, f.host())
				}
			}
		}
	}
	for name := range seen {
		p.summary.Actions = append(p.summary.Actions, name)
	}
	slices.Sort(p.summary.Actions)
	slices.Sort(p.facts.Backends)
	p.facts.Backends = slices.Compact(p.facts.Backends)
	slices.Sort(p.facts.InternalHosts)
	p.facts.InternalHosts = slices.Compact(p.facts.InternalHosts)
	if p.summary.Rules > 0 {
		sum := sha256.Sum256(appendCanonical(nil, root))
		p.facts.Digest = hex.EncodeToString(sum[:])
	}
}

// appendCanonical appends a tree in a form that is equal for equal meanings, and different for
// different ones.
func appendCanonical(b []byte, n *yaml.Node) []byte {
	switch n.Kind {
	case yaml.MappingNode:
		pairs := map[string]*yaml.Node{}
		var keys []string
		for i := 0; i+1 < len(n.Content); i += 2 {
			value := n.Content[i+1]
			if value.Tag == "!!null" || value.Kind != yaml.ScalarNode && len(value.Content) == 0 {
				continue
			}
			keys = append(keys, n.Content[i].Value)
			pairs[n.Content[i].Value] = value
		}
		slices.Sort(keys)
		b = append(b, '{')
		for _, k := range keys {
			b = append(strconv.AppendQuote(b, k), ':')
			b = append(appendCanonical(b, pairs[k]), ',')
		}
		return append(b, '}')
	case yaml.SequenceNode:
		b = append(b, '[')
		for _, item := range n.Content {
			b = append(appendCanonical(b, item), ',')
		}
		return append(b, ']')
	}
	switch n.Tag {
	case "!!int":
		var i int64
		if n.Decode(&i) == nil {
			return strconv.AppendInt(b, i, 10)
		}
	case "!!bool":
		return strconv.AppendBool(b, strings.EqualFold(n.Value, "true"))
	}
	return strconv.AppendQuote(b, n.Value)
}
