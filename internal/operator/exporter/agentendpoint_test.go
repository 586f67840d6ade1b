// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/agent/sealededge"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/serviceexport"
	"github.com/fairlead-dev/fairlead/test/support/sealtest"
)

// TestAgentEndpoints_MissingIsNotGone reconciles an object that the cache lacks.
func TestAgentEndpoints_MissingIsNotGone(t *testing.T) {
	t.Parallel()
	o := &v1alpha1.AgentEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "api"}}
	away := interceptor.Funcs{Get: func(
		context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption,
	) error {
		return errors.New("the API server is away")
	}}
	for name, tt := range map[string]struct {
		live client.Client
		kept bool
	}{
		"the API server has it": {fake.NewClientBuilder().WithScheme(kinds().Scheme()).WithObjects(o).Build(), true},
		"the API server is away": {fake.NewClientBuilder().WithScheme(kinds().Scheme()).WithInterceptorFuncs(away).
			Build(), true},
		"the API server has it not": {fake.NewClientBuilder().WithScheme(kinds().Scheme()).Build(), false},
	} {
		r := &agentEndpoints{client: fake.NewClientBuilder().WithScheme(kinds().Scheme()).Build(), live: tt.live,
			set: newEndpointSet(), traffic: newTrafficMetrics(), states: &bindStates{}}
		key := client.ObjectKeyFromObject(o)
		r.set.put(agentEndpoint(key), agent.Endpoint{Key: keyOf(key)})
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
		if kept := r.set.has(agentEndpoint(key)); err != nil || kept != tt.kept || result.RequeueAfter > 0 != tt.kept {
			t.Errorf("%s: kept %v, again after %v, %v", name, kept, result.RequeueAfter, err)
		}
	}
}

// TestAgentEndpoints_BoundWithoutAnswer: a change forgets the answer to the bind before; the status
// of before stays while it is of this generation, and another one waits for the answer a little.
func TestAgentEndpoints_BoundWithoutAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &agentEndpoints{set: newEndpointSet(), traffic: newTrafficMetrics()}
		r.states, _ = testBindStates(t)
		r.states.up()
		o := &v1alpha1.AgentEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "api", Generation: 2}}
		key := client.ObjectKeyFromObject(o)
		expect := func(what, reason string, wantWait bool) {
			t.Helper()
			if c, wait := r.bound(o, resolution{}); c.Reason != reason || wait != wantWait {
				t.Errorf("%s: %s %s, wait %v", what, c.Status, c.Reason, wait)
			}
		}
		r.serve(key, resolution{endpoint: agent.Endpoint{Key: keyOf(key)}}, false)
		expect("a new object", "", true)
		time.Sleep(answerWait)
		expect("an answer that is late", v1alpha1.ReasonPending, false)
		r.states.set(keyOf(key), bindState{Bound: true})
		expect("bound", v1alpha1.ReasonBound, false)
		r.serve(key, resolution{endpoint: agent.Endpoint{Key: keyOf(key), Description: "changed"}}, false)
		expect("changed", "", true)
		o.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionBound, Reason: v1alpha1.ReasonURLTaken,
			ObservedGeneration: 1}}
		expect("a status of the generation before", "", true)
		o.Status.Conditions[0].ObservedGeneration = 2
		expect("the status that another replica wrote", v1alpha1.ReasonURLTaken, false)
		r.states.down("connection refused")
		expect("no session for a moment", v1alpha1.ReasonURLTaken, false)
		time.Sleep(unreachableAfter)
		expect("no session", v1alpha1.ReasonUnreachable, false)
	})
}

// TestAgentEndpoints_LooksAgainAtSeals holds that an object is served once the kubelet has brought a
// certificate, that its names are compared again later, and that what was plain is withheld until then.
func TestAgentEndpoints_LooksAgainAtSeals(t *testing.T) {
	t.Parallel()
	o := &v1alpha1.AgentEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "db"},
		Spec: v1alpha1.AgentEndpointSpec{URL: "tcp://db.demo:5432", Sealed: true,
			Upstream: v1alpha1.Upstream{URL: "tcp://db:5432"}}}
	edge := sealededge.New(slog.New(slog.DiscardHandler))
	defer edge.Close()
	r := &agentEndpoints{client: fake.NewClientBuilder().WithScheme(kinds().Scheme()).WithObjects(o).Build(),
		set: newEndpointSet(), traffic: newTrafficMetrics(), lead: &leadership{},
		seal: &seal{edge: edge, dir: t.TempDir()}}
	r.states, _ = testBindStates(t)
	key := client.ObjectKeyFromObject(o)
	r.serve(key, resolution{endpoint: agent.Endpoint{Key: keyOf(key)}}, false)
	for _, served := range []bool{false, true, true} {
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
		if err != nil || r.set.has(agentEndpoint(key)) != served || result.RequeueAfter != serviceexport.SealRecheck {
			t.Errorf("served: %t, again after %v, %v", r.set.has(agentEndpoint(key)), result.RequeueAfter, err)
		}
		if all := r.set.all(); len(all) != 1 || all[0].Withheld == served {
			t.Errorf("want served: %t; the agent gets %+v", served, all)
		}
		sealtest.Write(t, r.seal.dir, sealtest.NewOwner(t, "ac-06f0l2rj1qg4o3b5e6s7t8u9v0").Server(
			account.EndpointURL{Scheme: "tcp", Host: "*.demo", Port: 5432}))
	}
	if e := r.set.endpoints[agentEndpoint(key)]; len(e) != 1 || e[0].Seal == nil {
		t.Errorf("endpoints %+v", e)
	}
}

func TestObserver_LogsSealProblems(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	o := &observer{log: slog.New(slog.NewTextHandler(&log, nil))}
	for cause, want := range map[string]string{"it ends": `problem="it ends"`, "": `problem="none any more"`} {
		log.Reset()
		o.Observe(agent.SealProblem{EndpointInfo: agent.EndpointInfo{Key: "demo/db"}, Cause: cause})
		if got := log.String(); !strings.Contains(got, "object=demo/db "+want) {
			t.Errorf("%q: %s", cause, got)
		}
	}
}
