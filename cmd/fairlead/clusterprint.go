// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/fairlead-dev/fairlead/internal/agent/screen"
)

// clusterCell formats what a cluster consists of in a list: its keys by kid, and a subject by role.
func clusterCell(v map[string]any) (text string, ok bool) {
	if keys, isSet := v["keys"].([]any); isSet {
		kids := make([]string, len(keys))
		for i, one := range keys {
			key, _ := one.(map[string]any)
			kids[i] = cell(key["kid"])
		}
		return strings.Join(kids, ","), true
	}
	if v["service_account"] != nil && v["role"] != nil {
		return cell(v["role"]), true
	}
	return "", false
}

// clusterLines formats the keys and the subjects of a cluster, one in each line; nil for other
// fields.
func clusterLines(name string, v any) (rows [][]string) {
	switch name {
	case "jwks":
		set, _ := v.(map[string]any)
		keys, _ := set["keys"].([]any)
		for _, one := range keys {
			key, _ := one.(map[string]any)
			rows = append(rows, []string{"key", cell(key["kid"]) + " (" + cell(key["alg"]) + ")"})
		}
	case "subjects":
		subjects, _ := v.([]any)
		for _, one := range subjects {
			s, _ := one.(map[string]any)
			rows = append(rows, []string{"subject", cell(s["role"]) + "=" + cell(s["namespace"]) + "/" +
				cell(s["service_account"]) + subjectFacts(s)})
		}
	}
	return rows
}

// subjectFacts formats the rules of a subject and the UID that its tokens must have.
func subjectFacts(s map[string]any) string {
	var b strings.Builder
	if acl, _ := s["acl"].([]any); len(acl) > 0 {
		b.WriteString(", rules " + cell(acl))
	}
	if uid, _ := s["uid"].(string); uid != "" {
		b.WriteString(", uid " + screen.Escape(uid))
	}
	return b.String()
}
