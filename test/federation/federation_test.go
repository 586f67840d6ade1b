// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// TestFederation_RunsOnTokens installs an operator without any secret. A pod's connection then lives
// through the renewal of the tokens and through the rotation of the cluster's keys, which the manager
// hands over, and the end of the cluster ends it.
func TestFederation_RunsOnTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.requestTokens()
	w.startManager()
	w.StartForwarder(w.credentials(account.RoleForwarder))
	w.startExporter()
	conn := w.waitConn()
	old := w.requestToken(account.RoleOperator)
	if status := w.apiStatus(old); status != http.StatusOK {
		t.Errorf("a token of the first key: status %d", status)
	}

	wait.Until(t, "the manager handing over the cluster's next key", func() bool {
		status, _ := w.condition(v1alpha1.ConditionKeysKnown)
		return status == "True KeysKnown"
	})
	w.rotateTokens(account.SubjectRoles()...)
	wait.Until(t, "forwarder and exporter renewing their sessions", func() bool {
		if err := echoes(conn); err != nil {
			t.Fatalf("the connection broke while tokens were renewed: %v", err)
		}
		return strings.Count(w.Logs.String(), "token was renewed") >= 2
	})
	manual := account.KeysByHand // or else the manager would hand it over again
	w.patchCluster(account.ClusterPatch{KeySource: &manual, RemoveKeys: []string{w.cluster.JWKS.Keys[0].KeyID}})
	wait.Until(t, "the old key's tokens being refused", func() bool {
		return w.apiStatus(old) == http.StatusUnauthorized
	})
	for range 30 { // what hangs on the old key ends within a second
		if err := echoes(conn); err != nil {
			t.Fatalf("the connection broke with the old key: %v", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	if _, err := w.dial(); err != nil {
		t.Errorf("a new connection after the rotation: %v", err)
	}
	if status, message := w.condition(v1alpha1.ConditionRegistered); status != "True Registered" {
		t.Errorf("Registered is %s: %s", status, message)
	}

	must.Succeed(t, w.tenant.Store.DeleteCluster(t.Context(), w.tenant.Caller(), w.cluster.ID))
	deleted := time.Now()
	for echoes(conn) == nil {
		if took := time.Since(deleted); took > 10*time.Second { // a second, and some for a busy machine
			t.Fatalf("the connection lives %s after the cluster was deleted", took)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestFederation_WaitsForToken checks that a manager whose token file is missing says so, and works
// once the kubelet has written it.
func TestFederation_WaitsForToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startManager()
	wait.Until(t, "the condition naming the file", func() bool {
		status, message := w.condition(v1alpha1.ConditionRegistered)
		return status == "False Unauthorized" && strings.Contains(message, w.tokenFile(account.RoleOperator))
	})
	w.requestTokens()
	wait.Until(t, "the manager being registered", func() bool {
		status, _ := w.condition(v1alpha1.ConditionRegistered)
		return status == "True Registered"
	})
}
