// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"os"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestIsReservedHeader_MatchesSpellings(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"Fairlead-Auth-Email": true, "fairlead_auth_email": true, "FAIRLEAD-X": true, "Fairlead_": true,
		"Fairlead.Auth.Email": true, "fairlead~auth-email": true, "Fairlead-Error-Code": true,
		"Fairlead": false, "Fairleading": false, "Fairlead2-A": false, "X-Fairlead-A": false, "": false,
	} {
		if IsReservedHeader(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

func TestIsForwardingHeader_MatchesSpellings(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"X-Forwarded-For": true, "x_forwarded_for": true, "X~Forwarded~Client-Cert": true, "X-Forwarded-Port": true,
		"X-Forwarded-Anything-That-Is-Longer-Than-All": true, "X-Forwarded": true, "Forwarded": true,
		"Forwarded-For": true, "X-Real-IP": true, "x.real.ip": true, "True-Client-IP": true, "true_client_ip": true,
		"CF-Connecting-IP": true, "X-Client-IP": true, "Client-IP": true, "X-Cluster-Client-IP": true,
		"X-Forward": false, "X-Forwardedfor": false, "X-Client-IP-Allowed": false, "Via": false, "": false,
		"Client": false, "X-Request-Id": false,
	} {
		if IsForwardingHeader(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

func TestForwardingHeaders_Documented(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/run/public-edge.md")
	must.Succeed(t, err)
	for name := range forwardingHeaders {
		if !strings.Contains(strings.ToLower(string(doc)), "`"+name+"`") {
			t.Errorf("docs/run/public-edge.md does not name %s", name)
		}
	}
}
