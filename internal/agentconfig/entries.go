// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agentconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// EndpointSpec is an item of endpoints or tunnels in the config file: what a `fairlead http`, `tcp`
// or `tunnel` would have as flags. Its texts are as they were written; only their kinds are
// checked.
type EndpointSpec struct {
	Name   string // unique in the file
	Tunnel bool   // an item of tunnels: it has Labels, and no URL
	Line   int

	URL, Binding, Description, Metadata string
	Upstream, UpstreamProtocol          string
	HostHeader                          string
	TrafficPolicy                       string
	TrafficPolicyFile                   string // the path it was read from; "" = inline
	PoolingEnabled, ReplacePoolPolicy   bool
	Labels                              map[string]string

	Errors []error // everything that is wrong with the entry's form; each names file, line, entry and field

	file  *file
	lines map[string]int // of fields
}

// EndpointSpecs returns the endpoints and tunnels of the config file, in its order. problems are
// those that leave unclear which entries there are; each names file and line.
func (s *Settings) EndpointSpecs() (entries []*EndpointSpec, problems []error) {
	for _, key := range []string{KeyEndpoints, KeyTunnels} {
		node := s.file.lists[key]
		switch {
		case node == nil || node.Kind == yaml.ScalarNode && node.Tag == "!!null":
			continue
		case node.Kind != yaml.SequenceNode:
			problems = append(problems, s.file.errorAt(node, "%s must be a list: each item begins with \"- name: …\"", key))
			continue
		}
		for i, item := range node.Content {
			e, err := s.file.entry(key, i, resolve(item))
			if err != nil {
				problems = append(problems, err)
				continue
			}
			if twin := slices.IndexFunc(entries, func(o *EndpointSpec) bool { return o.Name == e.Name }); twin >= 0 {
				problems = append(problems,
					s.file.errorAt(item, "the name %q is taken by the entry at line %d; names are unique over endpoints and tunnels",
						e.Name, entries[twin].Line))
			}
			entries = append(entries, e)
		}
	}
	return entries, problems
}

// Title names the entry for messages.
func (e *EndpointSpec) Title() string {
	if e.Tunnel {
		return fmt.Sprintf("tunnel %q", e.Name)
	}
	return fmt.Sprintf("endpoint %q", e.Name)
}

// ErrorAt returns an error about a field; its text names file, line and entry. For a field that is
// not written it names the entry's line.
func (e *EndpointSpec) ErrorAt(field, problem string) error {
	line := e.lines[field]
	if line == 0 {
		line = e.Line
	}
	return fmt.Errorf("config file %q line %d: %s: %s", e.file.path, line, e.Title(), problem)
}

// entry reads one item. Its error says that the item is nothing that could be named.
func (f *file) entry(key string, index int, n *yaml.Node) (*EndpointSpec, error) {
	if n.Kind != yaml.MappingNode {
		return nil, f.errorAt(n, "%s[%d] must have fields, as in \"name: web\"", key, index)
	}
	e := &EndpointSpec{Tunnel: key == KeyTunnels, Line: n.Line, file: f, lines: map[string]int{}}
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == "name" {
			e.Name = resolve(n.Content[i+1]).Value
		}
	}
	if rule := wrongName(e.Name); rule != "" {
		return nil, f.errorAt(n, "%s[%d]: name %q: %s", key, index, account.Shorten(e.Name), rule)
	}
	for i := 0; i < len(n.Content); i += 2 {
		name := n.Content[i].Value
		if e.lines[name] != 0 {
			e.problem(name, "field %q appears twice; remove one", name)
			continue
		}
		e.lines[name] = n.Content[i].Line
		e.take(name, resolve(n.Content[i+1]))
	}
	if e.lines["traffic_policy"] != 0 && e.lines["traffic_policy_file"] != 0 {
		e.problem("traffic_policy_file", "traffic_policy and traffic_policy_file exclude each other: give one of them")
	}
	return e, nil
}

func (e *EndpointSpec) problem(field, format string, args ...any) {
	e.Errors = append(e.Errors, e.ErrorAt(field, fmt.Sprintf(format, args...)))
}

func wrongName(name string) string {
	switch {
	case name == "":
		return "each entry needs a name, for `fairlead start NAME`"
	case len(name) > account.MaxName:
		return fmt.Sprintf("has %d bytes; at most %d are allowed", len(name), account.MaxName)
	case strings.HasPrefix(name, "-") || strings.ContainsFunc(name, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	}):
		return "must be printable, without spaces, and not begin with '-'"
	}
	return ""
}

// texts are the fields whose value is a text.
func (e *EndpointSpec) texts() map[string]*string {
	if e.Tunnel {
		return map[string]*string{"name": &e.Name, "metadata": &e.Metadata, "upstream": &e.Upstream,
			"upstream_protocol": &e.UpstreamProtocol}
	}
	return map[string]*string{
		"name": &e.Name, "url": &e.URL, "binding": &e.Binding, "description": &e.Description, "metadata": &e.Metadata,
		"upstream":          &e.Upstream,
		"upstream_protocol": &e.UpstreamProtocol, "host_header": &e.HostHeader,
	}
}

// FieldNames returns the fields of an endpoint, or of a tunnel.
func FieldNames(tunnel bool) []string {
	if tunnel {
		return []string{"name", "labels", "upstream", "upstream_protocol", "metadata"}
	}
	return []string{
		"name", "url", "upstream", "upstream_protocol", "binding", "description", "metadata", "host_header",
		"pooling_enabled",
		"traffic_policy", "traffic_policy_file", "replace_pool_policy",
	}
}

func (e *EndpointSpec) take(field string, n *yaml.Node) {
	if !slices.Contains(FieldNames(e.Tunnel), field) {
		e.problem(field, "unknown field %q; known fields are %s", account.Shorten(field),
			strings.Join(FieldNames(e.Tunnel), ", "))
		return
	}
	switch field {
	case "labels":
		e.takeLabels(n)
	case "pooling_enabled":
		e.takeFlag(field, n, &e.PoolingEnabled)
	case "replace_pool_policy":
		e.takeFlag(field, n, &e.ReplacePoolPolicy)
	case "traffic_policy":
		e.takePolicy(n)
	case "traffic_policy_file":
		e.readPolicy(n)
	default:
		if n.Kind != yaml.ScalarNode {
			e.problem(field, "%s must be a text", field)
			return
		}
		*e.texts()[field] = text(n)
	}
}

func (e *EndpointSpec) takeFlag(field string, n *yaml.Node, to *bool) {
	if n.Kind != yaml.ScalarNode || n.Decode(to) != nil {
		e.problem(field, "%s %q: must be true or false", field, account.Shorten(n.Value))
	}
}

func (e *EndpointSpec) takeLabels(n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		e.problem("labels", "labels must be a mapping, as in \"app: api\"")
		return
	}
	e.Labels = map[string]string{}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], resolve(n.Content[i+1])
		_, twice := e.Labels[key.Value]
		switch {
		case value.Kind != yaml.ScalarNode:
			e.problem("labels", "the value of label %q must be a text", account.Shorten(key.Value))
		case twice:
			e.problem("labels", "label %q appears twice; remove one", account.Shorten(key.Value))
		default:
			e.Labels[key.Value] = text(value)
		}
	}
}

// takePolicy takes a policy as a text, or as the YAML that it is.
func (e *EndpointSpec) takePolicy(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode {
		e.TrafficPolicy = text(n)
		return
	}
	b, err := yaml.Marshal(n)
	if err != nil {
		e.problem("traffic_policy", "traffic_policy cannot be read: %v", err)
	}
	e.TrafficPolicy = string(b)
}

func (e *EndpointSpec) readPolicy(n *yaml.Node) {
	path := text(n)
	if n.Kind != yaml.ScalarNode || path == "" {
		e.problem("traffic_policy_file", "traffic_policy_file must be the path of a file")
		return
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(e.file.path), path)
	}
	policy, err := ReadPolicyFile(path)
	if err != nil {
		e.problem("traffic_policy_file", "traffic_policy_file: %v", err)
	}
	e.TrafficPolicy, e.TrafficPolicyFile = policy, path
}

// ReadPolicyFile reads the file of a traffic policy.
func ReadPolicyFile(path string) (string, error) {
	data, _, err := readLimited(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%q does not exist", path)
	case err != nil:
		return "", fmt.Errorf("reading a traffic policy: %w", err)
	case strings.TrimSpace(string(data)) == "":
		return "", fmt.Errorf("%q is empty; write the policy, or leave the file out", path)
	case len(data) > account.MaxTrafficPolicy:
		return "", fmt.Errorf("%q has %d bytes; a traffic policy has at most %d", path, len(data), account.MaxTrafficPolicy)
	}
	return string(data), nil
}

// text returns a scalar's text; null has none.
func text(n *yaml.Node) string {
	if n.Tag == "!!null" {
		return ""
	}
	return n.Value
}

// resolve follows an alias.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
