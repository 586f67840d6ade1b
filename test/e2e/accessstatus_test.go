// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/path"
)

// readsStatus reads the object as a user does.
func (w *accessWorld) readsStatus(t *testing.T) {
	w.allow(t, labelledWeb)
	w.wantDenied(t, w.far)
	w.waitCondition(t, v1alpha1.ConditionAccepted, "True", "")
	w.waitCondition(t, v1alpha1.ConditionForwardersEnforce, "True", v1alpha1.ReasonEnforced)
	w.waitCondition(t, v1alpha1.ConditionNetworkPoliciesWritten, "False", v1alpha1.ReasonDisabled)
	w.c.Eventually(t, time.Minute, "the denied caller in the status", func(ctx context.Context) error {
		epa, err := w.rule(ctx)
		if err != nil {
			return err
		}
		for _, d := range epa.Status.Denied {
			if d.Caller == w.partner+"/far" && d.Hostname == "api."+w.ns && d.Count > 0 {
				return nil
			}
		}
		return fmt.Errorf("denied are %+v", epa.Status.Denied)
	})
	lines := strings.Split(w.c.Kubectl(t, "-n", w.ns, "get", "epa"), "\n")
	if got := strings.Join(strings.Fields(lines[0]), " "); got != "NAME ENDPOINTS ENFORCED DENIED AGE" {
		t.Errorf("kubectl get epa has the columns %q", got)
	}
	if f := strings.Fields(lines[1]); len(f) != 5 || f[1] != `["api","db"]` || f[2] != "True" || f[3] == "0" {
		t.Errorf("kubectl get epa prints %q", lines[1])
	}
	denied := w.c.waitBrokenHop(t, path.HopAccess, w.api, "--from-pod", w.partner+"/far")
	if !strings.Contains(denied.Detail, "EndpointAccess rule") {
		t.Errorf("the doctor does not name the rule: %s", denied.Detail)
	}
	allowed, err := w.c.doctor(t.Context(), t, nil, w.api, "--from-pod", w.ns+"/web")
	if h := allowed.Hop(path.HopAccess); err != nil || h == nil || !strings.Contains(h.Detail, "from[0]") {
		t.Errorf("the doctor of an allowed pod: %+v, %v", h, err)
	}
	w.allow(t, `{podSelector: {matchLabels: {app: "not a value!"}}}`)
	w.waitCondition(t, v1alpha1.ConditionAccepted, "False", v1alpha1.ReasonInvalidSelector)
	w.wantDenied(t, w.web)
}

func (w *accessWorld) rule(ctx context.Context) (*v1alpha1.EndpointAccess, error) {
	epa := &v1alpha1.EndpointAccess{}
	return epa, w.c.Client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: "rule"}, epa)
}

// waitCondition waits for a condition of the object's current generation; an empty reason is any.
func (w *accessWorld) waitCondition(t *testing.T, condition, status, reason string) {
	t.Helper()
	w.c.Eventually(t, 45*time.Second, fmt.Sprintf("%s=%s (%s)", condition, status, reason),
		func(ctx context.Context) error {
			epa, err := w.rule(ctx)
			if err != nil {
				return err
			}
			c := meta.FindStatusCondition(epa.Status.Conditions, condition)
			if c == nil || string(c.Status) != status || reason != "" && c.Reason != reason ||
				c.ObservedGeneration != epa.Generation {
				return fmt.Errorf("generation %d has the conditions %+v", epa.Generation, epa.Status.Conditions)
			}
			return nil
		})
}
