// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"slices"
	"strings"
)

// Sealing describes whose agent applies a document: what only the service could do or know is a mistake
// then.
type Sealing struct {
	CallersProven bool // CallersProven reports that the agent refuses callers that do not prove themselves.
}

// serviceActions are the actions that the service alone can run.
var serviceActions = []string{"forward-backend", "forward-internal", "oauth", "openid-connect", "saml"}

// unknown returns why the agent does not know a variable, or "". A nil Sealing knows all.
func (s *Sealing) unknown(name string) string {
	isOf := func(group string) bool { return name == group || strings.HasPrefix(name, group+".") }
	switch {
	case s == nil:
	case isOf("conn.geo"):
		return "the agent of a sealed endpoint has no data about locations; leave it out, or serve the endpoint " +
			"without a seal"
	case strings.HasSuffix(name, ".annotations"):
		return "annotations of pods are not sent to agents; use the pod's service account"
	case s.CallersProven:
	case slices.ContainsFunc([]string{"conn.pod", "conn.k8s", "conn.cluster", "conn.operator"}, isOf):
		return "callers of this sealed endpoint need not prove who they are; serve it by an agent with " +
			"--seal-callers (seal_callers)"
	}
	return ""
}
