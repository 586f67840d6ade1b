// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestManager_RBACRevokedAndRestored(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t)
	binding := w.restrict()
	w.start()
	w.createInitialState()
	w.awaitConverged("after the creation")
	w.delete(binding)
	w.applyChanges()
	w.await("the condition is false", w.unready("new"))
	binding.SetResourceVersion("")
	binding.SetUID("")
	w.kube.MustCreate(binding)
	w.awaitConverged("with its rights")
}

func TestManager_QuotaOfZero(t *testing.T) {
	t.Parallel()
	w := newTestCluster(t)
	none := corev1.ResourceList{corev1.ResourceServices: resource.MustParse("0")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: w.target, Name: "none"},
		Spec: corev1.ResourceQuotaSpec{Hard: none}}
	w.kube.MustCreate(quota)
	quota.Status = corev1.ResourceQuotaStatus{Hard: none, Used: none} // what the quota controller would write
	must.Succeed(t, w.kube.Status().Update(t.Context(), quota))
	w.start()
	w.createInitialState()
	w.await("the condition is false", w.unready("api"))
	w.delete(quota)
	w.awaitConverged("with room")
	w.applyChanges()
	w.awaitConverged("after the changes")
}

// unready returns a check that the condition ServicesReady of the hostname is false.
func (w *testCluster) unready(name string) func() error {
	return func() error {
		var b v1alpha1.BoundEndpoint
		if err := w.kube.Get(w.Context(), client.ObjectKey{Namespace: w.own.Namespace, Name: name + "." + w.target},
			&b); err != nil {
			return err
		}
		if !meta.IsStatusConditionFalse(b.Status.Conditions, v1alpha1.ConditionServicesReady) {
			return fmt.Errorf("the conditions of %s are %v", b.Name, b.Status.Conditions)
		}
		return nil
	}
}

func (w *testCluster) delete(o client.Object) {
	w.Helper()
	must.Succeed(w, w.kube.Delete(w.Context(), o))
}

// restrict runs managers as a user with exactly the rules of config/rbac, and returns the
// ClusterRoleBinding of that user.
func (w *testCluster) restrict() (binding client.Object) {
	w.Helper()
	user := "manager-of-" + w.own.Namespace
	raw, err := os.ReadFile("../../config/rbac/manager.yaml")
	must.Succeed(w, err)
	for _, doc := range strings.Split(string(raw), "\n---\n") {
		var role rbacv1.ClusterRole // has the fields of a Role that are used here
		must.Succeed(w, yaml.Unmarshal([]byte(strings.ReplaceAll(doc, "- fairlead-operator-anchor", "- "+w.anchor())),
			&role))
		subjects, ref := []rbacv1.Subject{{Kind: "User", Name: user, APIGroup: rbacv1.GroupName}},
			rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: role.Kind, Name: user}
		if role.Kind == "ClusterRole" {
			w.kube.MustCreate(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: role.Rules})
			binding = &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: ref,
				Subjects: subjects}
			w.kube.MustCreate(binding)
			continue
		}
		w.kube.MustCreate(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: w.own.Namespace, Name: user},
			Rules: role.Rules})
		w.kube.MustCreate(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: w.own.Namespace, Name: user},
			RoleRef:  ref,
			Subjects: subjects})
	}
	w.config = rest.CopyConfig(config)
	w.config.Impersonate = rest.ImpersonationConfig{UserName: user}
	return binding
}

func TestManager_LabelsAndAnnotationsOverwritten(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			w := newTestCluster(t)
			w.start()
			w.createInitialState()
			w.awaitConverged("after the creation")
			before := w.identities()
			rng := rand.New(rand.NewPCG(seed, 1))
			for range 30 {
				w.overwriteMetadata(rng)
			}
			w.awaitConverged("after the overwrites")
			if diff := cmp.Diff(before, w.identities()); diff != "" {
				t.Errorf("Services lost their identity: %s", diff)
			}
			for range 30 {
				w.overwriteMetadata(rng)
			}
			w.applyChanges()
			w.awaitConverged("after the changes")
		})
	}
}

// overwriteMetadata removes the labels or the annotations of one Fairlead object that has both: a
// Service without either no longer counts as Fairlead's.
func (w *testCluster) overwriteMetadata(rng *rand.Rand) {
	w.Helper()
	objects := w.owned()
	if len(objects) == 0 {
		return
	}
	o := objects[rng.IntN(len(objects))]
	switch rng.IntN(3) {
	case 0:
		o.SetLabels(nil)
	case 1:
		o.SetAnnotations(map[string]string{"theirs": "yes"})
	default:
		o.SetLabels(map[string]string{"theirs": "yes", installation.Label: "theirs"})
	}
	if err := w.kube.Update(w.Context(), o); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		w.Fatal(err)
	}
}

// owned returns the objects whose labels and annotations mark them as the installation's.
func (w *testCluster) owned() (objects []client.Object) {
	w.Helper()
	for _, namespace := range []string{w.own.Namespace, w.target} {
		var services corev1.ServiceList
		var beps v1alpha1.BoundEndpointList
		for _, list := range []client.ObjectList{&services, &beps} {
			must.Succeed(w, w.kube.List(w.Context(), list, client.InNamespace(namespace)))
		}
		for i := range services.Items {
			objects = append(objects, &services.Items[i])
		}
		for i := range beps.Items {
			objects = append(objects, &beps.Items[i])
		}
	}
	kept := objects[:0]
	for _, o := range objects {
		if w.own.Owns(o) {
			kept = append(kept, o)
		}
	}
	return kept
}

// identities returns the UID and the address of each owned Service, by namespace/name.
func (w *testCluster) identities() map[string]string {
	w.Helper()
	all := map[string]string{}
	for _, o := range w.owned() {
		if s, ok := o.(*corev1.Service); ok {
			all[s.Namespace+"/"+s.Name] = string(s.UID) + " " + s.Spec.ClusterIP
		}
	}
	return all
}

func TestManager_ObjectsDeletedByHand(t *testing.T) {
	t.Parallel()
	for _, running := range []bool{true, false} {
		t.Run(fmt.Sprintf("manager runs: %v", running), func(t *testing.T) {
			t.Parallel()
			w := newTestCluster(t)
			stop, _ := w.start()
			w.createInitialState()
			w.awaitConverged("after the creation")
			before := w.identities()
			if !running {
				stop()
			}
			for _, kind := range []client.Object{&v1alpha1.BoundEndpoint{}, &v1alpha1.KubernetesOperator{}} {
				must.Succeed(t, w.kube.DeleteAllOf(t.Context(), kind, client.InNamespace(w.own.Namespace)))
			}
			if !running {
				w.start()
			}
			w.awaitConverged("after the loss")
			if diff := cmp.Diff(before, w.identities()); diff != "" {
				t.Errorf("Services lost their identity: %s", diff)
			}
			w.applyChanges()
			w.awaitConverged("after the changes")
		})
	}
	t.Run("and an endpoint goes meanwhile", func(t *testing.T) {
		t.Parallel()
		w := newTestCluster(t)
		stop, _ := w.start()
		w.createInitialState()
		w.awaitConverged("after the creation")
		stop()
		must.Succeed(t, w.kube.DeleteAllOf(t.Context(), &v1alpha1.BoundEndpoint{},
			client.InNamespace(w.own.Namespace)))
		w.account.Delete("ep-api")
		w.start()
		w.awaitConverged("after the loss")
	})
}

// TestManager_CRDDeletedByHand deletes the CRD that all tests here share. It is the only one that
// is not parallel, so it runs before the others and alone.
func TestManager_CRDDeletedByHand(t *testing.T) {
	w := newTestCluster(t)
	w.start()
	w.createInitialState()
	w.awaitConverged("after the creation")
	before := w.identities()
	name := client.ObjectKey{Name: "boundendpoints.bindings.fairlead.dev"}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	must.Succeed(t, w.kube.Get(t.Context(), name, crd))
	w.delete(crd.DeepCopy())
	w.await("the CRD is gone", func() error {
		err := w.kube.Get(t.Context(), name, &apiextensionsv1.CustomResourceDefinition{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	w.account.Put(endpoint("ep-late", "http://late."+w.target, "ep-late", "agent"))
	crd.ObjectMeta = metav1.ObjectMeta{Name: crd.Name, Annotations: crd.Annotations, Labels: crd.Labels}
	crd.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
	must.Succeed(t, w.kube.Create(context.WithoutCancel(t.Context()), crd))
	w.awaitConverged("with the CRD again")
	after := w.identities()
	for service, identity := range before {
		if after[service] != identity {
			t.Errorf("Service %s was %q and is %q", service, identity, after[service])
		}
	}
	w.applyChanges()
	w.awaitConverged("after the changes")
}
