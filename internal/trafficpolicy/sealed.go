// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"slices"
	"strings"

	celast "github.com/google/cel-go/common/ast"
	"go.yaml.in/yaml/v3"
)

// Sealing describes whose agent applies a document: what only the service could do or know is a mistake
// then.
type Sealing struct {
	CallersProven bool // CallersProven reports that the agent refuses callers that do not prove themselves.
}

// serviceActions are the actions that the service alone can run.
var serviceActions = []string{"forward-backend", "forward-internal", "oauth", "openid-connect", "saml"}

// runsHere reports whether an action can run where the document is applied.
func (c *compiler) runsHere(n *yaml.Node, name string) bool {
	if c.policy.options.Sealing == nil || !slices.Contains(serviceActions, name) {
		return true
	}
	c.problem(n, name, "%s takes the service, which reads nothing of a sealed endpoint: leave it out, or serve the "+
		"endpoint without --sealed", name)
	return false
}

// checkVariables reports the variables of an expression that the agent of a sealed endpoint does not
// know. Its text begins at the character offset of n's value.
func (c *compiler) checkVariables(n *yaml.Node, offset int, text string, a *celast.AST) {
	if c.policy.options.Sealing == nil {
		return
	}
	for id, read := range a.ReferenceMap() {
		name := strings.TrimPrefix(read.Name, presencePrefix)
		if why := c.policy.options.Sealing.unknown(name); why != "" {
			start := a.SourceInfo().GetStartLocation(id)
			c.problemAt(n, offset+runeOffset(text, start.Line(), start.Column()), name, "%s is never known: %s", name, why)
		}
	}
}

// unknown returns why the agent does not know a variable, or "".
func (s *Sealing) unknown(name string) string {
	isOf := func(group string) bool { return name == group || strings.HasPrefix(name, group+".") }
	switch {
	case isOf("conn.geo"):
		return "the agent of a sealed endpoint has no data about locations; leave it out, or serve the endpoint " +
			"without --sealed"
	case strings.HasSuffix(name, ".annotations"):
		return "annotations of pods are not sent to agents; use the pod's service account"
	case !s.CallersProven && slices.ContainsFunc([]string{"conn.pod", "conn.k8s", "conn.cluster", "conn.operator"}, isOf):
		return "callers of this sealed endpoint need not prove who they are; give --seal-callers (seal_callers), too"
	}
	return ""
}
