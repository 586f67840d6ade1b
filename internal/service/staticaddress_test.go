// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// TestServer_RefusesForbiddenStaticAddress: the API refuses a static backend to which the server
// would not connect, and names the flag that permits it.
func TestServer_RefusesForbiddenStaticAddress(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t, func(o *service.Options) { o.StaticAllow = []string{"10.1.0.0/16"} })
	for address, want := range map[string]int{"10.0.0.1:80": 400, "localhost:80": 400, "10.1.2.3:80": 201,
		"db.example.com:5432": 201} {
		var answer struct {
			ID     string
			Errors []account.FieldError
		}
		if status := r.CallAPI("POST", "/backends/static", map[string]any{"address": address},
			&answer); status != want {
			t.Errorf("%s: %d", address, status)
		}
		switch {
		case want == 400 && (len(answer.Errors) != 1 || answer.Errors[0].Field != "address" ||
			!strings.Contains(answer.Errors[0].Rule, "--static-allow can permit it")):
			t.Errorf("%s: %+v", address, answer)
		case want == 201:
			if status := r.CallAPI("PATCH", "/backends/static/"+answer.ID, map[string]any{"address": "127.0.0.1:1"},
				nil); status != 400 {
				t.Errorf("a change of %s: %d", address, status)
			}
		}
	}
}
