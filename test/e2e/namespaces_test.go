// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TestNamespaces checks promise 7: Services only in namespaces that are listed or that consent,
// with Roles only, under the restricted standard; and one release a namespace.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	s := c.StartService(t)
	c.StartUpstream(t, "hello", "serve", "127.0.0.1:8651")
	open, shut, asked := c.Namespace(t, "open"), c.Namespace(t, "shut"), c.Namespace(t, "asked")
	home := c.Namespace(t, "fairlead")
	c.Kubectl(t, "label", "namespace", home, "pod-security.kubernetes.io/enforce=restricted")
	listed := s.InstallIn(t, home, "fairlead-operator", "--set",
		fmt.Sprintf("binding.namespaces.allow={%s,%s}", open, shut))
	for _, ns := range []string{open, shut, asked} {
		s.Agent(t, "http", "8651", "http://web."+ns)
	}

	t.Run("a namespace that is listed works, and one that is not is left alone", func(t *testing.T) {
		listed.BoundEndpoint(t, "web."+open, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
		listed.BoundEndpoint(t, "web."+asked, v1alpha1.ConditionReady, "False", v1alpha1.ReasonNamespaceNotAllowed)
		c.CurlUntil(t, 15*time.Second, c.CurlPod(t, open), "http://web."+open, 200)
	})
	t.Run("nothing of the release is the cluster's", func(t *testing.T) {
		for name := range strings.FieldsSeq(c.Kubectl(t, "get", "clusterroles,clusterrolebindings", "-o", "name")) {
			if strings.Contains(name, home) {
				t.Errorf("%s", name)
			}
		}
	})
	t.Run("a namespace that takes its rights back says so and recovers", func(t *testing.T) {
		testRevokedRights(t, listed, open, shut)
	})
	t.Run("consent by label, of a second release", func(t *testing.T) { testNamespaceSelector(t, s, asked, open) })
	t.Run("a second release in the namespace does nothing and says so", func(t *testing.T) {
		testSecondRelease(t, listed)
	})
	t.Run("uninstall leaves nothing", func(t *testing.T) {
		c.Helm(t, "uninstall", listed.Name, "--namespace", listed.Namespace)
		listed.waitNothingLeft(t, collectionTimeout)
	})
}

func testRevokedRights(t *testing.T, r *Release, open, shut string) {
	c := r.c
	r.BoundEndpoint(t, "web."+shut, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	name := r.Namespace + "." + r.Name + "-manager"
	binding := &rbacv1.RoleBinding{}
	must.Succeed(t, c.Client.Get(t.Context(), client.ObjectKey{Namespace: shut, Name: name}, binding))
	must.Succeed(t, c.Client.Delete(t.Context(), binding))
	// one that is there cannot be re-created, one that is new cannot be made; the other namespace
	// does not notice
	c.Kubectl(t, "delete", "service", "web", "--namespace", shut)
	bep := r.BoundEndpoint(t, "web."+shut, v1alpha1.ConditionServicesReady, "False", v1alpha1.ReasonNamespaceForbidden)
	if message := conditionMessage(bep, v1alpha1.ConditionServicesReady); !strings.Contains(message, name) ||
		!strings.Contains(message, shut) {
		t.Errorf("the message does not name the Role: %q", message)
	}
	c.Kubectl(t, "delete", "service", "web", "--namespace", open)
	c.Eventually(t, 5*time.Second, "the Service of the other namespace is back", func(ctx context.Context) error {
		return c.Client.Get(ctx, client.ObjectKey{Namespace: open, Name: "web"}, &corev1.Service{})
	})
	// a manager that starts without the rights cannot even read there
	c.Kubectl(t, "rollout", "restart", "deployment/"+r.Name+"-manager", "--namespace", r.Namespace)
	c.Kubectl(t, "rollout", "status", "deployment/"+r.Name+"-manager", "--namespace", r.Namespace, "--timeout=90s")
	r.BoundEndpoint(t, "web."+open, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	r.BoundEndpoint(t, "web."+shut, v1alpha1.ConditionServicesReady, "False", v1alpha1.ReasonNamespaceForbidden)
	again := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: shut, Name: name, Labels: binding.Labels,
			Annotations: binding.Annotations},
		RoleRef: binding.RoleRef, Subjects: binding.Subjects,
	}
	must.Succeed(t, c.Client.Create(t.Context(), again))
	start := time.Now()
	c.Eventually(t, 45*time.Second, "the Service is back", func(ctx context.Context) error {
		return c.Client.Get(ctx, client.ObjectKey{Namespace: shut, Name: "web"}, &corev1.Service{})
	})
	t.Logf("projected %v after the rights were given back", time.Since(start).Round(time.Millisecond))
	r.BoundEndpoint(t, "web."+shut, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
}

func conditionMessage(bep *v1alpha1.BoundEndpoint, typ string) string {
	for _, c := range bep.Status.Conditions {
		if c.Type == typ {
			return c.Message
		}
	}
	return ""
}

func testNamespaceSelector(t *testing.T, s *Service, asked, open string) {
	c := s.c
	second := s.Install(t, "--set", "binding.namespaces.selector=fairlead=yes")
	second.BoundEndpoint(t, "web."+asked, v1alpha1.ConditionReady, "False", v1alpha1.ReasonNamespaceNotAllowed)
	c.Kubectl(t, "label", "namespace", asked, "fairlead=yes")
	second.BoundEndpoint(t, "web."+asked, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	c.Kubectl(t, "label", "namespace", asked, "fairlead-")
	start := time.Now()
	c.Gone(t, 10*time.Second, asked, "web", &corev1.Service{})
	t.Logf("no Service %v after consent was withdrawn", time.Since(start).Round(time.Millisecond))
	second.BoundEndpoint(t, "web."+asked, v1alpha1.ConditionReady, "False", v1alpha1.ReasonNamespaceNotAllowed)
	c.Kubectl(t, "label", "namespace", open, "fairlead=yes")
	bep := second.BoundEndpoint(t, "web."+open, v1alpha1.ConditionReady, "False", v1alpha1.ReasonConflict)
	if message := conditionMessage(bep, v1alpha1.ConditionReady); !strings.Contains(message,
		"the Fairlead installation ") {
		t.Errorf("the conflict does not name the first installation: %q", message)
	}
	c.Helm(t, "uninstall", second.Name, "--namespace", second.Namespace)
	second.waitNothingLeft(t, collectionTimeout)
}

func testSecondRelease(t *testing.T, first *Release) {
	c := first.c
	second := first.Service.InstallIn(t, first.Namespace, "late")
	c.Eventually(t, 30*time.Second, "the second release says that it waits", func(ctx context.Context) error {
		out, err := c.Exec(ctx, "kubectl", "get", "events", "--namespace", first.Namespace, "--field-selector",
			"reason=SecondRelease", "-o", "jsonpath={.items[*].message}")
		if err == nil && !strings.Contains(out, "release late is inactive: release "+first.Namespace+"/"+first.Name+
			" runs in this namespace") {
			err = fmt.Errorf("events: %q", out)
		}
		return err
	})
	if out := c.Kubectl(t, "get", "kubernetesoperator", "late", "--namespace", first.Namespace, "-o",
		`jsonpath={.status.conditions[?(@.type=="Registered")].reason}`); out != v1alpha1.ReasonSecondRelease {
		t.Errorf("its KubernetesOperator says %q", out)
	}
	c.Helm(t, "uninstall", second.Name, "--namespace", second.Namespace)
}

// TestNamespaces_ListedNamespaceIsDeleted deletes the namespace of an operator with a list of
// namespaces: nothing that is deleted with it can own objects of other namespaces, so the manager
// removes them before it ends.
func TestNamespaces_ListedNamespaceIsDeleted(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	s := c.StartService(t)
	one, two := c.Namespace(t, "one"), c.Namespace(t, "two")
	r := s.Install(t, "--set", fmt.Sprintf("binding.namespaces.allow={%s,%s}", one, two))
	for _, ns := range []string{one, two} {
		s.AgentOnly(t, "http", "8652", "http://web."+ns)
		r.BoundEndpoint(t, "web."+ns, v1alpha1.ConditionServicesReady, "True", v1alpha1.ReasonProjected)
	}
	start := time.Now()
	c.Kubectl(t, "delete", "namespace", r.Namespace, "--wait=false")
	c.Gone(t, 30*time.Second, one, "web", &corev1.Service{})
	c.Gone(t, 30*time.Second, two, "web", &corev1.Service{})
	t.Logf("no target Service %v after the deletion of the namespace", time.Since(start).Round(time.Millisecond))
	c.Gone(t, collectionTimeout, "", r.Namespace, &corev1.Namespace{})
}
