// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficerror

import (
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
)

func TestClass_PageNamesCommandOfOfflineAgent(t *testing.T) {
	t.Parallel()
	for binding, want := range map[string]string{
		account.BindingKubernetes: "(fairlead http PORT --url http://a.demo)",
		account.BindingPublic:     "(fairlead http PORT --url http://a.demo --binding public)",
	} {
		ep := &account.Endpoint{URL: "http://a.demo", Bindings: []string{binding}, Type: account.TypeAgent}
		if got := classes[account.CodeEndpointOffline].Page(ep); !strings.Contains(got, want) {
			t.Errorf("%s: %q does not hold %q", binding, got, want)
		}
	}
}
