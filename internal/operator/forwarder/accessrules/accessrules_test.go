// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package accessrules

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/test/support/testenv"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// world is a real API server.
type world struct {
	*testenv.Kube
	t      *testing.T
	config *rest.Config
}

func newWorld(t *testing.T) *world {
	t.Helper()
	config := testenv.Start(t)
	return &world{Kube: testenv.NewKube(t, config), t: t, config: config}
}

// watch runs a Watcher until the test ends.
func (w *world) watch(o Options) *Watcher {
	w.t.Helper()
	if o.Kubernetes == nil {
		o.Kubernetes = w.config
	}
	o.Default, o.Logger = endpointaccess.Allow, slog.New(slog.DiscardHandler)
	watcher, err := New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); watcher.Run(ctx) }()
	w.t.Cleanup(func() { cancel(); <-done })
	return watcher
}

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func access(namespace, name string, endpoints ...string) *v1alpha1.EndpointAccess {
	return &v1alpha1.EndpointAccess{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.EndpointAccessSpec{EndpointSelection: v1alpha1.EndpointSelection{Endpoints: endpoints}}}
}

func (w *Watcher) restricted(hostname string) bool {
	return w.Snapshot().Rules.Restricted(endpointaccess.TargetOf(hostname, 80))
}

// TestWatcher reads one API server, in this order.
func TestWatcher(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.MustCreate(namespace("demo", map[string]string{"team": "a"}), namespace("prod", nil),
		access("demo", "api", "api"))
	t.Run("follows objects and labels", w.followsObjects)
	t.Run("remembers what vanished", w.remembersVanished)
	t.Run("knows namespaces that are being deleted", w.knowsNamespaces)
	t.Run("reads the namespaces that it may", w.readsAllowedNamespaces)
	t.Run("keeps the rules without the API server", w.keepsRules)
	t.Run("has no rules without the CRD", w.toleratesMissingCRD)
}

func (w *world) followsObjects(t *testing.T) {
	config, listed := rest.CopyConfig(w.config), make(chan struct{})
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) { <-listed; return next.RoundTrip(r) })
	})
	watcher := w.watch(Options{Kubernetes: config, NamespaceLabels: true})
	if s := watcher.Snapshot(); s.Knows("demo") || s.Complete() {
		t.Error("the rules are known before they are listed")
	}
	close(listed)
	wait.Until(t, "the lists", func() bool { return watcher.Snapshot().Complete() })
	if !watcher.restricted("api.demo") || watcher.restricted("api.prod") || !watcher.Snapshot().Knows("prod") {
		t.Error("wrong rules")
	}
	var labels endpointaccess.Labels
	wait.Until(t, "the namespace", func() (known bool) { // it is listed beside the rules
		labels, known = watcher.Snapshot().NamespaceLabels("demo")
		return known
	})
	if team, _ := labels.Lookup("team"); team != "a" {
		t.Errorf("the label is %q", team)
	}
	if err := w.Update(t.Context(), namespace("demo", map[string]string{"team": "b"})); err != nil {
		t.Fatal(err)
	}
	for team := "a"; team != "b"; { // a change that was on its way may come first
		wait.Receive(t, "the change of a label", watcher.Changed())
		labels, _ = watcher.Snapshot().NamespaceLabels("demo")
		team, _ = labels.Lookup("team")
	}
	if _, known := watcher.Snapshot().NamespaceLabels("other"); known {
		t.Error("a namespace that does not exist is known")
	}
	w.MustCreate(access("prod", "all", "*"))
	begun := time.Now()
	wait.Until(t, "the new object", func() bool { return watcher.restricted("api.prod") })
	if took := time.Since(begun); took > 10*time.Second { // at once, and some for a busy machine
		t.Errorf("the object was known after %s", took)
	}
	if err := w.Delete(t.Context(), access("prod", "all")); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the end of the object", func() bool { return !watcher.restricted("api.prod") })
}

// remembersVanished deletes, changes and replaces the only object of an endpoint.
func (w *world) remembersVanished(t *testing.T) {
	const grace = 2 * time.Second // the API server has to do both parts of a replacement meanwhile
	watcher := w.watch(Options{Grace: grace})
	changes := func(what string, change func() error, wait time.Duration, want bool) {
		t.Helper()
		if err := change(); err != nil {
			t.Fatal(err)
		}
		for until := time.Now().Add(wait); time.Now().Before(until); time.Sleep(time.Millisecond) {
			if watcher.restricted("api.prod") != want {
				t.Fatalf("%s: restricted is %v", what, !want)
			}
		}
	}
	o := access("prod", "api", "api")
	w.MustCreate(o)
	wait.Until(t, "the object", func() bool { return watcher.restricted("api.prod") })
	changes("replaced", func() error {
		if err := w.Delete(t.Context(), o); err != nil {
			return err
		}
		o = access("prod", "api", "api")
		return w.Create(t.Context(), o)
	}, 2*grace, true)
	changes("changed", func() error {
		o.Spec.Endpoints = []string{"web"}
		return w.Update(t.Context(), o)
	}, grace/2, true)
	wait.Until(t, "the end of the grace", func() bool { return !watcher.restricted("api.prod") })
	begun := time.Now()
	if err := w.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the end of the grace", func() bool { return !watcher.restricted("web.prod") })
	if took := time.Since(begun); took < grace {
		t.Errorf("the deleted object held for %s only", took)
	}
	if s := watcher.Snapshot(); len(s.Policies) != 1 || s.Rules.Digest("prod") != "" {
		t.Errorf("%d objects", len(s.Policies))
	}
}

// knowsNamespaces deletes a namespace that stays, as no controller finishes that here.
func (w *world) knowsNamespaces(t *testing.T) {
	w.MustCreate(namespace("squad", nil))
	watcher := w.watch(Options{})
	wantProblem := func(name, want string) {
		t.Helper()
		wait.Until(t, want, func() bool {
			problem, known := watcher.Snapshot().NamespaceProblem(name)
			return known && problem == want
		})
	}
	wantProblem("squad", "")
	wantProblem("missing", v1alpha1.ReasonNamespaceNotFound)
	if err := w.Delete(t.Context(), namespace("squad", nil)); err != nil {
		t.Fatal(err)
	}
	wantProblem("squad", v1alpha1.ReasonNamespaceTerminating)
}

// readsAllowedNamespaces watches as a user who may read one of two namespaces, and no cluster.
func (w *world) readsAllowedNamespaces(t *testing.T) {
	w.MustCreate(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "reader"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{resource},
			Verbs: []string{"list", "watch"}}}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "reader"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "forwarder"}}})
	config := rest.CopyConfig(w.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "forwarder"}
	watcher := w.watch(Options{Kubernetes: config, Namespaces: []string{"demo", "prod"}})
	wait.Until(t, "the list", func() bool { return watcher.Snapshot().Knows("demo") })
	if s := watcher.Snapshot(); s.Knows("prod") || s.Knows("other") || s.Complete() {
		t.Error("namespaces are known that must not be read")
	}
	if !watcher.restricted("api.demo") {
		t.Error("the rule is not known")
	}
	if _, known := watcher.Snapshot().NamespaceProblem("demo"); known {
		t.Error("namespaces are known that must not be read")
	}
}

// keepsRules cuts the API server off, and then answers as a proxy that knows nothing.
func (w *world) keepsRules(t *testing.T) {
	var mode atomic.Value
	mode.Store("")
	config := rest.CopyConfig(w.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			switch mode.Load() {
			case "away":
				return nil, http.ErrServerClosed
			case "lost":
				return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody, Request: r,
					Header: http.Header{"Content-Type": {"text/html"}}}, nil
			}
			r = r.Clone(r.Context())
			if q := r.URL.Query(); q.Get("watch") != "" { // soon the next request
				q.Set("timeoutSeconds", "1")
				r.URL.RawQuery = q.Encode()
			}
			return next.RoundTrip(r)
		})
	})
	watcher := w.watch(Options{Kubernetes: config})
	wait.Until(t, "the list", func() bool { return watcher.Snapshot().Complete() })
	for _, m := range []string{"away", "lost"} {
		mode.Store(m)
		timeout := time.After(3 * time.Second)
		for ended := false; !ended; {
			select {
			case <-watcher.Changed():
			case <-timeout:
				ended = true
			}
			if !watcher.restricted("api.demo") || !watcher.Snapshot().Complete() {
				t.Fatalf("%s: the rules are lost", m)
			}
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// toleratesMissingCRD removes the CRD and puts it back.
func (w *world) toleratesMissingCRD(t *testing.T) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	key := client.ObjectKey{Name: resource + "." + v1alpha1.GroupVersion.Group}
	if err := w.Get(t.Context(), key, crd); err != nil {
		t.Fatal(err)
	}
	if err := w.Delete(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the end of the CRD", func() bool {
		err := w.List(t.Context(), &v1alpha1.EndpointAccessList{})
		return err != nil && strings.Contains(err.Error(), "could not find the requested resource")
	})
	watcher := w.watch(Options{})
	wait.Until(t, "an answer", func() bool { return watcher.Snapshot().Complete() })
	if watcher.restricted("api.demo") {
		t.Error("there are rules without the CRD")
	}
	crd.ResourceVersion, crd.UID, crd.Status = "", "", apiextensionsv1.CustomResourceDefinitionStatus{}
	w.MustCreate(crd)
	wait.Until(t, "the CRD", func() bool { return w.Create(t.Context(), access("demo", "api", "api")) == nil })
	wait.Until(t, "the rule", func() bool { return watcher.restricted("api.demo") })
}
