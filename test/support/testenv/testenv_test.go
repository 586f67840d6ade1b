// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestStart_ControllersDeleteDependentsAndNamespaces(t *testing.T) {
	t.Parallel()
	cfg := Start(t, WithControllers("namespace", "garbagecollector"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := client.New(cfg, client.Options{})
	must.Succeed(t, err)
	create := func(o client.Object) {
		t.Helper()
		must.Succeed(t, c.Create(ctx, o))
	}
	gone := func(o client.Object) {
		t.Helper()
		err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			err := c.Get(ctx, client.ObjectKeyFromObject(o), o)
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
		if err != nil {
			t.Errorf("%T %s is still there: %v", o, o.GetName(), err)
		}
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "short-lived"}}
	create(ns)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner", Namespace: "default"}}
	create(owner)
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owned", Namespace: "default",
		OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID},
		}}}
	create(owned)
	for _, o := range []client.Object{ns, owner} {
		must.Succeed(t, c.Delete(ctx, o))
	}
	gone(owned)
	gone(ns)
}

func TestNew_InstallsCRDs(t *testing.T) {
	t.Parallel()
	e, err := New()
	must.Succeed(t, err)
	c, err := client.New(e.Config, client.Options{})
	must.Succeed(t, err)
	for _, kind := range []string{"BoundEndpoint", "KubernetesOperator", "AgentEndpoint", "CloudEndpoint"} {
		if _, err := c.RESTMapper().RESTMapping(v1alpha1.GroupVersion.WithKind(kind).GroupKind()); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	must.Succeed(t, e.Stop())
	if err := c.List(t.Context(), &corev1.NamespaceList{}); err == nil {
		t.Error("the API server still answers after Stop")
	}
}

func TestNew_MissingProgramsNameTheRemedy(t *testing.T) {
	t.Setenv(assetsVariable, "")
	t.Setenv("FAIRLEAD_CACHE", t.TempDir())
	_, err := New()
	if err == nil || !strings.Contains(err.Error(), "make envtest-assets") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v, want one line that names make envtest-assets", err)
	}
}

func TestAssetsDir_EnvironmentComesFirst(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(assetsVariable, dir)
	for _, p := range []string{"etcd", "kube-apiserver", "kube-controller-manager"} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, p), nil, 0o700))
	}
	if got, err := assetsDir(); err != nil || got != dir {
		t.Errorf("assetsDir() = %q, %v; want %q", got, err, dir)
	}
}
