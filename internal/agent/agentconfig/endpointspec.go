// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agentconfig

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/sealed/authority"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

// EndpointSpec is an endpoint or a labelled tunnel as its user wrote it: in the flags of
// `fairlead http`, `tcp` or `tunnel`, or as an item of endpoints or tunnels in the config file.
// Values are not validated.
type EndpointSpec struct {
	// Endpoint has all fields but those below. Its Name is unique in the config file; "" when the
	// file has none that is usable.
	agent.Endpoint

	Tunnel     bool          // a labelled tunnel: it has Labels and no URL
	Line       int           // in the config file
	URLText    string        // to be parsed as Endpoint.URL
	Target     string        // to be parsed as Endpoint.Upstream, of which only Protocol is set
	Trust      trust.Options // an https upstream's; without CAPEM
	ServerName string        // an https upstream's; "" = its host

	Sealed       string // folder of the certificate and key for sealed connections; "" = they are plain
	SealCallers  string // PEM file of the authorities that callers prove themselves by; "" = they need not
	SealClusters string // file of the clusters whose tokens prove callers, too; "" = none do

	Errors []*SpecError // wrong types, unknown and duplicate fields in the config file

	file  *file
	place string         // such as endpoints[0]
	lines map[string]int // by field
}

// Names of the settings of sealed endpoints, in the config file and in errors.
const (
	FieldSealed       = authority.FieldSealed
	FieldSealCallers  = authority.FieldCallers
	FieldSealClusters = authority.FieldClusters
)

// SpecError is a problem with one field of an item in the config file.
type SpecError struct {
	Spec  *EndpointSpec
	Field string
	Msg   string
}

// Error names the file, the line, the item and the problem. For a field that the item does not have
// the line is the item's.
func (e *SpecError) Error() string {
	line := cmp.Or(e.Spec.lines[e.Field], e.Spec.Line)
	return fmt.Sprintf("config file %q line %d: %s: %s", e.Spec.file.path, line, e.Spec.Title(), e.Msg)
}

// EndpointSpecs returns the endpoints and tunnels of the config file in file order. problems are
// those of lists, of what is no item, and of names that are not usable; each names file and line.
func (s *Settings) EndpointSpecs() (specs []*EndpointSpec, problems []error) {
	for _, key := range []string{KeyEndpoints, KeyTunnels} {
		node := s.file.lists[key]
		switch {
		case node == nil || node.Kind == yaml.ScalarNode && node.Tag == "!!null":
			continue
		case node.Kind != yaml.SequenceNode:
			problems = append(problems, s.file.errorAt(node, "%s must be a list: each item begins with \"- name: …\"",
				key))
			continue
		}
		for i, item := range node.Content {
			e, err := s.file.parseSpec(key, i, resolveAlias(item))
			if err != nil {
				problems = append(problems, err)
			}
			if e == nil {
				continue
			}
			if twin := slices.IndexFunc(specs, func(o *EndpointSpec) bool { return o.Name == e.Name }); twin >= 0 &&
				err == nil {
				problems = append(problems,
					s.file.errorAt(item,
						"the name %q is taken by the entry at line %d; names are unique over endpoints and tunnels",
						e.Name, specs[twin].Line))
			}
			specs = append(specs, e)
		}
	}
	return specs, problems
}

// Title names the item for messages, such as `endpoint "web"`.
func (e *EndpointSpec) Title() string {
	if e.Name == "" {
		return e.place
	}
	if e.Tunnel {
		return fmt.Sprintf("tunnel %q", e.Name)
	}
	return fmt.Sprintf("endpoint %q", e.Name)
}

// HasError reports whether Errors has an error of the field.
func (e *EndpointSpec) HasError(field string) bool {
	return slices.ContainsFunc(e.Errors, func(err *SpecError) bool { return err.Field == field })
}

// parseSpec reads one item. Beside the error about a name that is not usable it returns the item
// without its name; nil for what has no fields.
func (f *file) parseSpec(key string, index int, n *yaml.Node) (*EndpointSpec, error) {
	if n.Kind != yaml.MappingNode {
		return nil, f.errorAt(n, "%s[%d] must have fields, as in \"name: web\"", key, index)
	}
	e := &EndpointSpec{Tunnel: key == KeyTunnels, Line: n.Line, file: f, lines: map[string]int{},
		place: fmt.Sprintf("%s[%d]", key, index)}
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == "name" {
			e.Name = scalarText(resolveAlias(n.Content[i+1]))
		}
	}
	var unusable error
	if rule := brokenNameRule(e.Name); rule != "" {
		unusable = f.errorAt(n, "%s: name %q: %s", e.place, account.Shorten(e.Name), rule)
		e.Name = ""
	}
	for i := 0; i < len(n.Content); i += 2 {
		name := n.Content[i].Value
		if e.lines[name] != 0 {
			e.addError(name, "field %q appears twice; remove one", name)
			continue
		}
		e.lines[name] = n.Content[i].Line
		if name != "name" {
			e.parseField(name, resolveAlias(n.Content[i+1]))
		}
	}
	if e.lines["traffic_policy"] != 0 && e.lines["traffic_policy_file"] != 0 {
		e.addError("traffic_policy_file", "traffic_policy and traffic_policy_file exclude each other: give one of them")
	}
	if !e.Tunnel && e.Binding == "" {
		e.Binding = account.BindingKubernetes
	}
	return e, unusable
}

func (e *EndpointSpec) addError(field, format string, args ...any) {
	e.Errors = append(e.Errors, &SpecError{Spec: e, Field: field, Msg: fmt.Sprintf(format, args...)})
}

// brokenNameRule returns the rule that the name breaks, or "".
func brokenNameRule(name string) string {
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

// EndpointsHelp describes the endpoints and the tunnels of the config file.
const EndpointsHelp = `  endpoints:
    - name: web                     # for fairlead start web
      url: http://web.demo
      upstream: 8080                # PORT, HOST:PORT or URL
      traffic_policy_file: web.yml  # relative to the config file; or traffic_policy: inline
    - name: orders
      url: tcp://orders.db:5432
      upstream: db.intern:5432
  tunnels:
    - name: api
      labels: {app: api, site: a}
      upstream: 9000

Further fields of an endpoint: binding, description, metadata, upstream_protocol, upstream_ca_file,
upstream_ca_sha256, upstream_server_name, proxy_protocol, host_header, service_labels,
sealed, seal_callers, seal_clusters, pooling_enabled, replace_pool_policy; of a tunnel: metadata, and those
that begin with upstream. Paths are relative to the config file. With pooling_enabled the service does not get the
name: it tells the members of a pool apart by their machines.`

// fieldNames returns the fields of an endpoint, or of a tunnel.
func fieldNames(tunnel bool) []string {
	if tunnel {
		return []string{"name", "labels", "upstream", "upstream_protocol", agent.FieldCAFile, agent.FieldCASHA256,
			agent.FieldServerName, "metadata"}
	}
	return []string{
		"name", "url", "upstream", "upstream_protocol", agent.FieldCAFile, agent.FieldCASHA256, agent.FieldServerName,
		"binding", "description", "metadata", "host_header", agent.FieldProxyProtocol, "service_labels",
		"pooling_enabled", "traffic_policy", "traffic_policy_file", "replace_pool_policy", FieldSealed,
		FieldSealCallers, FieldSealClusters,
	}
}

func (e *EndpointSpec) parseField(field string, n *yaml.Node) {
	if known := fieldNames(e.Tunnel); !slices.Contains(known, field) {
		e.addError(field, "unknown field %q; known fields are %s", account.Shorten(field), strings.Join(known, ", "))
		return
	}
	switch field {
	case "labels":
		e.parseLabels(n)
	case "pooling_enabled":
		e.parseBool(field, n, &e.PoolingEnabled)
	case "replace_pool_policy":
		e.parseBool(field, n, &e.ReplacePoolPolicy)
	case "traffic_policy":
		e.parsePolicy(n)
	case "traffic_policy_file":
		e.readPolicy(n)
	default:
		if n.Kind != yaml.ScalarNode {
			e.addError(field, "%s must be a text", field)
			return
		}
		to := map[string]*string{
			"url": &e.URLText, "binding": &e.Binding, "description": &e.Description,
			"metadata": &e.Metadata, "upstream": &e.Target, "upstream_protocol": &e.Upstream.Protocol,
			agent.FieldCAFile: &e.Trust.CAFile, agent.FieldCASHA256: &e.Trust.CASHA256,
			agent.FieldServerName: &e.ServerName, "host_header": &e.HostMode,
			agent.FieldProxyProtocol: &e.Upstream.ProxyProtocol, "service_labels": &e.ServiceLabels,
			FieldSealed: &e.Sealed, FieldSealCallers: &e.SealCallers, FieldSealClusters: &e.SealClusters,
		}[field]
		*to = scalarText(n)
		if *to != "" && slices.Contains([]string{agent.FieldCAFile, FieldSealed, FieldSealCallers, FieldSealClusters},
			field) {
			*to = e.file.resolvePath(*to)
		}
	}
}

func (e *EndpointSpec) parseBool(field string, n *yaml.Node, to *bool) {
	if n.Kind != yaml.ScalarNode || n.Decode(to) != nil {
		e.addError(field, "%s %q: must be true or false", field, account.Shorten(n.Value))
	}
}

func (e *EndpointSpec) parseLabels(n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		e.addError("labels", "labels must be a mapping, as in \"app: api\"")
		return
	}
	e.Labels = map[string]string{}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], resolveAlias(n.Content[i+1])
		_, duplicate := e.Labels[key.Value]
		switch {
		case value.Kind != yaml.ScalarNode:
			e.addError("labels", "the value of label %q must be a text", account.Shorten(key.Value))
		case duplicate:
			e.addError("labels", "label %q appears twice; remove one", account.Shorten(key.Value))
		default:
			e.Labels[key.Value] = scalarText(value)
		}
	}
}

// parsePolicy accepts a policy as a text or as nested YAML.
func (e *EndpointSpec) parsePolicy(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode {
		e.TrafficPolicy = scalarText(n)
		return
	}
	b, err := yaml.Marshal(n)
	if err != nil {
		e.addError("traffic_policy", "traffic_policy cannot be read: %v", err)
	}
	e.TrafficPolicy = string(b)
}

// readPolicy reads the policy from a file whose path may be relative to the config file.
func (e *EndpointSpec) readPolicy(n *yaml.Node) {
	path := scalarText(n)
	if n.Kind != yaml.ScalarNode || path == "" {
		e.addError("traffic_policy_file", "traffic_policy_file must be the path of a file")
		return
	}
	path = e.file.resolvePath(path)
	policy, err := ReadPolicyFile(path)
	if err != nil {
		e.addError("traffic_policy_file", "traffic_policy_file: %v", err)
	}
	e.TrafficPolicy, e.TrafficPolicyFile = policy, path
}

// resolvePath returns the path of a file that the config file names.
func (f *file) resolvePath(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(f.path), path)
}

// ReadPolicyFile reads a traffic policy of at most account.MaxTrafficPolicy bytes; an empty one is
// an error.
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
		return "", fmt.Errorf("%q has %d bytes; a traffic policy has at most %d", path, len(data),
			account.MaxTrafficPolicy)
	}
	return string(data), nil
}

// scalarText returns the text of a scalar, "" for null.
func scalarText(n *yaml.Node) string {
	if n.Tag == "!!null" {
		return ""
	}
	return n.Value
}

// resolveAlias returns the node that an alias stands for, or n.
func resolveAlias(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
