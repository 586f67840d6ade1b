// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/path"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// replicaScenarios are those of a service with replicas.
func replicaScenarios() []scenario {
	const all = `"legs": [{"replica": "rp-1"}, {"replica": "rp-2"}, {"replica": "rp-3"}], "wanted_legs": 3`
	of := func(legs string) func(f *fake) {
		return func(f *fake) {
			f.replace(askOne, `"up": true`, `"up": true, `+all)
			f.replace(askTwo, `"up": true`, `"up": true, `+legs)
		}
	}
	return []scenario{
		{"all replicas", "", of(all)},
		{"replica that stops", "", of(`"legs": [{"replica": "rp-1"}, {"replica": "rp-2", "draining": true},
			{"replica": "rp-3", "unresponsive": true}],
			"wanted_legs": 2, "legs_missing_since": "2026-11-20T14:05:02Z"`)},
		{"replica missing for long", "", of(`"legs": [{"replica": "rp-1"}, {"replica": "rp-2"}], "wanted_legs": 3,
			"legs_missing_since": "2026-11-20T14:01:33Z"`)},
		{"replica unresponsive for long", "", of(`"legs": [{"replica": "rp-1"},
			{"replica": "rp-2", "unresponsive": true}],
			"wanted_legs": 2, "legs_missing_since": "2026-11-20T14:01:33Z"`)},
		{"balancer with affinity", "", of(`"legs": [{"replica": "rp-2"}], "wanted_legs": 3,
			"legs_missing_since": "2026-11-20T14:01:33Z"`)},
		{"status forbidden, the operator reports replicas", "", func(f *fake) {
			f.forbidProxy()
			f.replace(askOps, `"conditions": [`,
				`"legs": "2/3", "conditions": [{"type": "EdgeReachable", "status": "True", "reason": "Online",
				"message": "all forwarders have a session with the service's edge"},`)
		}},
	}
}

func TestPrint_VerboseShowsReplicas(t *testing.T) {
	t.Parallel()
	f := recorded(t)
	replicaScenarios()[1].change(f)
	r := Run(t.Context(), f.o)
	var b bytes.Buffer
	h := r.Hop(path.HopEdge)
	must.Succeed(t, Print(&b, path.Report{OK: true, Hops: []path.Hop{*h}}, PrintOptions{Verbose: true}))
	golden(t, "replicas verbose.txt", b.Bytes())
}
