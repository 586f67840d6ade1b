// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/agent"
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
		"the API server has it": {fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(o).Build(), true},
		"the API server is away": {fake.NewClientBuilder().WithScheme(newScheme()).WithInterceptorFuncs(away).
			Build(), true},
		"the API server has it not": {fake.NewClientBuilder().WithScheme(newScheme()).Build(), false},
	} {
		r := &agentEndpoints{client: fake.NewClientBuilder().WithScheme(newScheme()).Build(), live: tt.live,
			set: newEndpointSet(), traffic: newTrafficMetrics(), states: &bindStates{}}
		key := client.ObjectKeyFromObject(o)
		r.set.put(key, &agent.Endpoint{Key: keyOf(key)})
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
		if err != nil || r.set.has(key) != tt.kept || result.RequeueAfter > 0 != tt.kept {
			t.Errorf("%s: kept %v, again after %v, %v", name, r.set.has(key), result.RequeueAfter, err)
		}
	}
}
