// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/endpointtrust"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// TestSealing_ReadyAndReportedOnceListed checks that a forwarder is not ready before it knows whom
// its endpoints' owners trust, where that can matter, and that its status then says what it enforces.
func TestSealing_ReadyAndReportedOnceListed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		account string
		waits   bool
	}{"set up": {"ac-1", true}, "not set up": {"", false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			byDefault := endpointtrust.Default{Mode: sealed.Off, Account: tt.account}
			rules := &fakeTrust{changed: make(chan struct{}, 10)}
			rules.set(byDefault, endpointaccess.Listed{"": false})
			r := start(t, startEdge(t, nil), shortTiming(), func(o *Options) { o.Trust = rules })
			r.source.update(testObjects())
			wait.Receive(t, "a session", r.edge.connectedOnce)
			if tt.waits {
				if reason := r.notReadyReason(); r.ready.Load() || !strings.Contains(reason, "EndpointTrust objects") {
					t.Errorf("ready, or not ready for another reason: %s", reason)
				}
			} else {
				wait.Until(t, "readiness", r.ready.Load)
			}
			if s := r.status().Trust; s.Complete || len(s.Policies) > 0 {
				t.Errorf("%+v", s)
			}
			changed := r.statusChanged.next()
			rules.set(byDefault, allListed, endpointtrust.Policy{Namespace: "other", Name: "p", UID: "1", Generation: 2,
				Spec: endpointtrust.Spec{Endpoints: []string{"db"}}})
			wait.Receive(t, "a change of the status", changed)
			wait.Until(t, "readiness", r.ready.Load)
			want := endpointaccess.Digest([]endpointtrust.Policy{{Name: "p", UID: "1", Generation: 2}})
			if s := r.status().Trust; !s.Complete || len(s.Policies) != 1 || s.Policies["other"] != want {
				t.Errorf("%+v", s)
			}
		})
	}
}
