// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/options"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

const (
	idleOperators = 50
	idleFor       = 3 * time.Minute
	// A watch's own time limit is not seen in that time; a heartbeat a minute is.
	idleGoal = 2 * idleOperators
)

// BenchmarkIdleOperators measures what operators with nothing to do ask of the account's API.
func BenchmarkIdleOperators(b *testing.B) {
	w, s := newControlPlane(b), newService(b)
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	var running sync.WaitGroup
	b.Cleanup(func() { cancel(); running.Wait() })
	for i := range idleOperators {
		namespace := fmt.Sprintf("operator-%d", i)
		must.Succeed(b, w.kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
		w.kube.MustCreate(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: anchor}})
		must.Succeed(b, w.kube.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
		o := operator.ManagerOptions{
			API: options.API{APIURL: s.server.URL, Credentials: options.Credentials{SecretFile: s.keyFile,
				CAFile: s.caFile}, VersionHeader: "Service-Version"},
			Installation:           installation.Installation{Namespace: namespace, Release: release},
			KubernetesOperatorSpec: v1alpha1.KubernetesOperatorSpec{BindingEnabled: true},
			ProjectionOptions: operator.ProjectionOptions{PortRange: "10000-32767", ClusterDomain: "cluster.local",
				Projection: v1alpha1.ProjectionExternalName},
			Roles: installation.Roles{ClusterRole: namespace, Role: anchor},
			ForwarderPods: installation.ForwarderPods{ForwarderName: "fairlead-forwarder",
				ForwarderInstance: release, ForwarderService: "fairlead-forwarders"},
			Process:     options.Process{Kubernetes: w.env.Config, Logger: slog.New(slog.DiscardHandler)},
			Substitutes: operator.Substitutes{Metrics: prometheus.NewRegistry()},
		}
		running.Go(func() {
			if err := operator.RunManager(ctx, o); err != nil {
				b.Error(err)
			}
		})
	}
	s.awaitOperators(idleOperators)
	<-time.After(10 * time.Second) // the start is over
	before := s.requests.Load()
	<-time.After(idleFor)
	perMinute := float64(s.requests.Load()-before) / idleFor.Minutes()
	f := &resultTable{}
	f.add(fmt.Sprintf("%d idle operators on one account: requests a minute", idleOperators),
		fmt.Sprintf("%.0f", perMinute), fmt.Sprintf("<= %d", idleGoal))
	f.print(b)
	if perMinute > idleGoal || perMinute < idleOperators/2 {
		b.Errorf("%.0f requests a minute: the goal is one or two an operator", perMinute)
	}
}

// awaitOperators waits until so many operators are registered.
func (s *service) awaitOperators(n int) {
	s.b.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; <-time.After(time.Second) {
		page, _, err := s.store.ListOperators(s.b.Context(), s.account, account.Page{})
		must.Succeed(s.b, err)
		if len(page) >= n {
			return
		}
		if time.Now().After(deadline) {
			s.b.Fatalf("%d operators are registered, want %d", len(page), n)
		}
	}
}
