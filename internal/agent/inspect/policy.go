// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// secretWords are parts of the names of headers that hold secrets if a policy sets them: the words
// by which the service redacts a policy's text.
var secretWords = []string{"secret", "password", "token", "private-key", "credential", "authorization", "api-key",
	"apikey"}

// MarkedBy returns the names of the headers that the add-headers actions of a traffic policy, YAML
// or JSON, set and that have one of secretWords in them. Of a text that is no policy it returns
// what can be read.
func MarkedBy(policy string) []string {
	type rule struct {
		Actions []struct {
			Type   string `yaml:"type"`
			Config struct {
				Headers map[string]yaml.Node `yaml:"headers"`
			} `yaml:"config"`
		} `yaml:"actions"`
	}
	var document struct {
		OnRequest  []rule `yaml:"on_http_request"`
		OnResponse []rule `yaml:"on_http_response"`
	}
	_ = yaml.Unmarshal([]byte(policy), &document) // the service has admitted the policy
	marked := make(map[string]bool)
	for _, r := range slices.Concat(document.OnRequest, document.OnResponse) {
		for _, a := range r.Actions {
			for name := range a.Config.Headers {
				if a.Type == "add-headers" && hasSecretWord(name) {
					marked[http.CanonicalHeaderKey(name)] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(marked))
}

func hasSecretWord(name string) bool {
	name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	return slices.ContainsFunc(secretWords, func(word string) bool { return strings.Contains(name, word) })
}
