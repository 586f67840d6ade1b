// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trustrules

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/endpointtrust"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/testenv"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

const key = "sha256/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="

// watch runs a Watcher until the test ends.
func watch(t *testing.T, o Options) *Watcher {
	t.Helper()
	o.Default.Mode = sealed.Off
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	w, err := New(o)
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func object() *v1alpha1.EndpointTrust {
	return &v1alpha1.EndpointTrust{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "api"},
		Spec: v1alpha1.EndpointTrustSpec{
			EndpointSelection: v1alpha1.EndpointSelection{Endpoints: []string{"api"}},
			Mode:              "Require", Keys: []string{key}}}
}

// decision returns what holds for http://api.demo: the mode, or why connections are refused.
func (w *Watcher) decision() string {
	d := w.Snapshot().Decide(account.EndpointURL{Scheme: "http", Host: "api.demo", Port: 80})
	if d.Refused != "" {
		return string(d.Refused)
	}
	return string(d.Trust.Mode)
}

func (w *Watcher) await(t *testing.T, want string) {
	t.Helper()
	wait.Until(t, want, func() bool { return w.decision() == want })
}

// TestWatcher reads one API server, in this order.
func TestWatcher(t *testing.T) {
	t.Parallel()
	config := testenv.Start(t)
	kube := testenv.NewKube(t, config)
	kube.MustCreate(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "demo"}})
	setUp := endpointtrust.Default{Account: "ac-1"}
	const grace = 500 * time.Millisecond
	t.Run("follows objects", func(t *testing.T) {
		later, listed := rest.CopyConfig(config), make(chan struct{})
		later.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) { <-listed; return next.RoundTrip(r) })
		})
		w := watch(t, Options{Kubernetes: later, Default: setUp, Grace: grace})
		if got := w.decision(); got != string(endpointtrust.ReasonUnknown) {
			t.Errorf("%s before the objects are listed", got)
		}
		close(listed)
		w.await(t, "Off")
		o := object()
		kube.MustCreate(o)
		w.await(t, "Require")
		wait.Receive(t, "a change", w.Changed())
		o.Spec.Endpoints = []string{"other"}
		must.Succeed(t, kube.Update(t.Context(), o))
		w.await(t, "Off")
		o.Spec.Endpoints = object().Spec.Endpoints
		must.Succeed(t, kube.Update(t.Context(), o))
		w.await(t, "Require")
		begun := time.Now()
		must.Succeed(t, kube.Delete(t.Context(), o))
		w.await(t, "Off")
		if took := time.Since(begun); took < grace {
			t.Errorf("the deleted object held for %s only", took)
		}
	})
	t.Run("of a forbidden namespace knows nothing", func(t *testing.T) {
		forbidden := rest.CopyConfig(config)
		forbidden.Impersonate = rest.ImpersonationConfig{UserName: "nobody"}
		refusals := make(logged, 1)
		w := watch(t, Options{Kubernetes: forbidden, Default: setUp, Namespaces: []string{"demo"},
			Logger: slog.New(slog.NewTextHandler(refusals, nil))})
		without := watch(t, Options{Kubernetes: forbidden, Namespaces: []string{"demo"}})
		wait.Receive(t, "the refusal", refusals)
		if got := w.decision(); got != string(endpointtrust.ReasonUnknown) {
			t.Errorf("%s", got)
		}
		without.await(t, "Off")
	})
	t.Run("has no rules without the CRD", func(t *testing.T) {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		name := client.ObjectKey{Name: resource + "." + v1alpha1.GroupVersion.Group}
		must.Succeed(t, kube.Get(t.Context(), name, crd))
		must.Succeed(t, kube.Delete(t.Context(), crd))
		wait.Until(t, "the end of the CRD", func() bool {
			err := kube.List(t.Context(), &v1alpha1.EndpointTrustList{})
			return err != nil && strings.Contains(err.Error(), "could not find the requested resource")
		})
		w := watch(t, Options{Kubernetes: config, Default: setUp})
		w.await(t, "Off")
		crd.ResourceVersion, crd.UID, crd.Status = "", "", apiextensionsv1.CustomResourceDefinitionStatus{}
		kube.MustCreate(crd)
		wait.Until(t, "the CRD", func() bool { return kube.Create(t.Context(), object()) == nil })
		w.await(t, "Require")
	})
}

// logged sends after each line that is written to it.
type logged chan struct{}

func (l logged) Write(line []byte) (int, error) {
	select {
	case l <- struct{}{}:
	default:
	}
	return len(line), nil
}
