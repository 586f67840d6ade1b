// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/apiserver"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// TestCloudEndpoints_ConcurrentUpdatesKeepSecrets updates a policy by its redacted text while
// another update replaces the secret between reading and writing: the old secret never comes
// back.
func TestCloudEndpoints_ConcurrentUpdatesKeepSecrets(t *testing.T) {
	t.Parallel()
	var meanwhile func() // between reading and writing
	var calls atomic.Int64
	a := newAPI(t, func(o *apiserver.Options) {
		o.CheckPolicy = func(text, scheme, binding string) (account.PolicyFacts, error) {
			if strings.HasPrefix(text, "# by marks") {
				calls.Add(1)
				meanwhile()
			}
			return testPolicy(text, scheme, binding)
		}
	})
	id := a.cloud("http://shop.demo", `,"traffic_policy":"secret: old"`)
	put := func(text string) {
		t.Helper()
		_, err := a.Store.PatchEndpoint(t.Context(), account.Caller{AccountID: a.AccountID}, id,
			account.EndpointPatch{TrafficPolicy: &text}, account.PolicyFacts{Digest: text})
		storetest.Must(t, err)
	}
	byMarks := func() *answer {
		return a.do("PATCH", "/endpoints/"+id, a.admin,
			fmt.Sprintf(`{"traffic_policy":%q}`, "# by marks\nsecret: "+testMark(a.AccountID, "old")))
	}
	meanwhile = func() { put("secret: new") }
	byMarks().want(400, account.CodeInvalid) // as it would have been, had it come after the other one
	storetest.Equal(t, "policy", a.Endpoint(id).TrafficPolicy, "secret: new")

	put("secret: old")
	meanwhile = func() {
		if calls.Load() == 2 {
			put("# and more\nsecret: old")
		}
	}
	byMarks().want(200) // the secret is still there: it is applied to what is there now
	storetest.Equal(t, "policy", a.Endpoint(id).TrafficPolicy, "# by marks\nsecret: \"old\"")

	put("secret: old")
	meanwhile = func() { put(fmt.Sprintf("# change %d\nsecret: old", calls.Load())) }
	byMarks().want(409, account.CodeChanged)
	storetest.Equal(t, "policy", a.Endpoint(id).TrafficPolicy, fmt.Sprintf("# change %d\nsecret: old", calls.Load()))
}
