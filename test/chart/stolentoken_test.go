// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// thief is who has a copy of a role's token.
type thief struct{ client.Client }

// steal makes a token of the role's ServiceAccount, as pods have them.
func (c *cluster) steal(t *testing.T, role string) thief {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: release + "-" + role}}
	request := &authenticationv1.TokenRequest{}
	must.Succeed(t, c.SubResource("token").Create(t.Context(), account, request))
	config := rest.AnonymousClientConfig(c.config)
	config.BearerToken = request.Status.Token
	as, err := client.New(config, client.Options{Scheme: c.Scheme()})
	must.Succeed(t, err)
	return thief{as}
}

// bindTo gives the rights of the binding with the name to another subject.
func (v thief) bindTo(ctx context.Context, name string, o ...client.PatchOption) error {
	var b rbacv1.ClusterRoleBinding
	if err := v.Get(ctx, client.ObjectKey{Name: name}, &b); err != nil {
		return err
	}
	before := b.DeepCopy()
	b.Subjects = []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "thief"}}
	return v.Patch(ctx, &b, client.MergeFrom(before), o...)
}

// addRule adds a right on Secrets to the ClusterRole with the name.
func (v thief) addRule(ctx context.Context, name string) error {
	var r rbacv1.ClusterRole
	if err := v.Get(ctx, client.ObjectKey{Name: name}, &r); err != nil {
		return err
	}
	before := r.DeepCopy()
	r.Rules = append(r.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"},
		Verbs: []string{"get"}})
	return v.Patch(ctx, &r, client.MergeFrom(before))
}

// triesRights patches the manager's own rights, which the admission policy limits to their owner.
func (v thief) triesRights(t *testing.T, name string) {
	t.Helper()
	ctx := t.Context()
	wait.Until(t, "the admission policy", func() bool { return v.bindTo(ctx, name, client.DryRunAll) != nil })
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	owner := func(kind, name string) string {
		return `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"` + kind + `","name":"` + name +
			`","uid":"00000000-0000-0000-0000-000000000001"}]}}`
	}
	const unchanged, onlyOwner = "changes no rights and no subjects", "changes only the owner"
	for _, tt := range []struct {
		name    string
		object  client.Object
		patch   string
		refusal string // empty: admitted
	}{
		{"another subject", binding, `{"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"x"}]}`,
			unchanged},
		{"no subject", binding, `{"subjects":null}`, unchanged},
		{"fewer rules", role, `{"rules":[]}`, unchanged},
		{"a part of the cluster's role edit", role,
			`{"metadata":{"labels":{"rbac.authorization.k8s.io/aggregate-to-edit":"true"}}}`, onlyOwner},
		{"an annotation", binding, `{"metadata":{"annotations":{"example.com/x":"y"}}}`, onlyOwner},
		{"a finalizer", role, `{"metadata":{"finalizers":["example.com/x"]}}`, onlyOwner},
		{"another owner", role, owner("Node", "n"), onlyOwner},
		{"another namespace as owner", binding, owner("Namespace", "kube-system"), onlyOwner},
		{"its namespace as owner", role, owner("Namespace", namespace), ""},
		{"its namespace as owner of the binding", binding, owner("Namespace", namespace), ""},
	} {
		err := v.Patch(ctx, tt.object, client.RawPatch(types.MergePatchType, []byte(tt.patch)), client.DryRunAll)
		refused := err != nil && strings.Contains(err.Error(), tt.refusal)
		if tt.refusal == "" && err != nil || tt.refusal != "" && !refused {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.refusal)
		}
	}
}

// triesAuthorities changes the ConfigMap of the announced authorities, whose data alone may change.
func (v thief) triesAuthorities(t *testing.T) {
	t.Helper()
	const file, refusal = "authorities-0123456789abcdef.pem", "writes nothing but authorities"
	var object corev1.ConfigMap
	key := client.ObjectKey{Namespace: namespace, Name: release + "-authorities"}
	must.Succeed(t, v.Get(t.Context(), key, &object))
	wait.Until(t, "the admission policy", func() bool {
		changed := object.DeepCopy()
		changed.Finalizers = []string{"example.com/x"}
		return v.Update(t.Context(), changed, client.DryRunAll) != nil
	})
	for what, change := range map[string]func(*corev1.ConfigMap){
		"a label":         func(o *corev1.ConfigMap) { o.Labels["grafana_dashboard"] = "1" },
		"an annotation":   func(o *corev1.ConfigMap) { o.Annotations["example.com/x"] = "y" },
		"a finalizer":     func(o *corev1.ConfigMap) { o.Finalizers = []string{"example.com/x"} },
		"no more changes": func(o *corev1.ConfigMap) { o.Immutable = ptr.To(true) },
		"another file":    func(o *corev1.ConfigMap) { o.Data["x"] = "" },
		"binary data":     func(o *corev1.ConfigMap) { o.BinaryData = map[string][]byte{"x": nil} },
		"":                func(*corev1.ConfigMap) {},
	} {
		changed := object.DeepCopy()
		changed.Data = map[string]string{file: "x"}
		change(changed)
		want := refusal
		if what == "" {
			want = ""
		}
		checkRefusal(t, "of the authorities: "+what, want, v.Update(t.Context(), changed, client.DryRunAll))
	}
	other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x"}}
	for what, err := range map[string]error{
		"deleting it":      v.Delete(t.Context(), &object),
		"making another":   v.Create(t.Context(), other),
		"reading another":  v.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: release + "-ca"}, &object),
		"reading them all": v.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(namespace)),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestSecurity_StolenManagerToken does with a token of the manager what docs/secure/credentials.md
// says that a thief can do with roles and bindings, and revokes it as the page says.
func TestSecurity_StolenManagerToken(t *testing.T) {
	t.Parallel()
	c, ctx := startCluster(t), t.Context()
	exporting := []string{"--set", "export.enabled=true,credentials.exporterApiKey=flk_exporter",
		"--set", "api.caBundle=-----BEGIN CERTIFICATE-----"}
	c.install(release, namespace, exporting...)
	stolen := c.steal(t, "manager")
	prefix := namespace + "." + release
	for _, role := range []string{"-manager", "-exporter", "-exports-edit", "-exports-view"} {
		if err := stolen.addRule(ctx, prefix+role); !apierrors.IsForbidden(err) {
			t.Errorf("adding a rule to %s: %v", role, err)
		}
	}
	if err := stolen.bindTo(ctx, prefix+"-exporter"); !apierrors.IsForbidden(err) {
		t.Errorf("binding the exporter's rights to another: %v", err)
	}
	stolen.triesRights(t, prefix+"-manager")
	stolen.triesServices(t, c)
	stolen.triesAuthorities(t)

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: release + "-manager"}}
	must.Succeed(t, c.Delete(ctx, account))
	kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: release + "-authorities"}}
	must.Succeed(t, c.Delete(ctx, kept))
	deleted := time.Now()
	wait.Until(t, "the API server to refuse the token", func() bool {
		return apierrors.IsUnauthorized(stolen.List(ctx, &corev1.ServiceList{}))
	})
	if took := time.Since(deleted); took > 15*time.Second { // 10 s, and some for a busy machine
		t.Errorf("the token was accepted for %s", took)
	}
	c.install(release, namespace, exporting...)
	var b rbacv1.ClusterRoleBinding
	if err := c.Get(ctx, client.ObjectKey{Name: prefix + "-manager"}, &b); err != nil || len(b.Subjects) != 1 ||
		b.Subjects[0].Name != release+"-manager" {
		t.Errorf("after helm upgrade: %+v, %v", b.Subjects, err)
	}
	must.Succeed(t, c.Get(ctx, client.ObjectKeyFromObject(kept), kept))
	if err := c.steal(t, "manager").List(ctx, &corev1.NamespaceList{}); err != nil {
		t.Errorf("a token of the ServiceAccount that helm upgrade made: %v", err)
	}
	if err := stolen.List(ctx, &corev1.ServiceList{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("the old token again: %v", err)
	}
}
