// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/internal/agent"
)

func soon(o *agent.Options) { o.LegsDelay = time.Millisecond }

func TestReplicas_ReportsMissing(t *testing.T) {
	t.Parallel()
	svc := newService(t)
	svc.replica, svc.replicas = "rp-1", 5
	svc.start()
	r := run(t, svc, "8080", soon)
	want := agent.Replicas{Connected: 1, Wanted: 3, Found: []string{"rp-1"}}
	if d := cmp.Diff(want, next[agent.Replicas](r)); d != "" {
		t.Error(d)
	}
}

func TestReplicas_NoneWithSingleServer(t *testing.T) {
	t.Parallel()
	svc := newService(t).start()
	r := run(t, svc, "8080", soon)
	for range 3 {
		receive(t, svc.bound, "session")
		svc.cut()
	}
	r.stop()
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if all := remaining[agent.Replicas](r); len(all) > 0 {
		t.Errorf("%+v", all)
	}
}
