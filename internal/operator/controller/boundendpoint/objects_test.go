// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// TestLayout_Services compares the Services of testdata/*.in.yaml with testdata/*.out.yaml.
func TestLayout_Services(t *testing.T) {
	t.Parallel()
	l := Layout{Installation: installation.Installation{Namespace: "fairlead", Release: "fairlead"},
		ClusterDomain: "cluster.local",
		ForwarderPods: installation.ForwarderPods{ForwarderName: "fairlead-forwarder", ForwarderInstance: "fairlead"}}
	owner := func(kind string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "rbac.authorization.k8s.io/v1", Kind: kind,
			Name: "fairlead-operator-anchor",
			UID:  "00000000-0000-0000-0000-000000000000"}}
	}
	inputs, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("no inputs: %v", err)
	}
	for _, input := range inputs {
		raw, err := os.ReadFile(input)
		must.Succeed(t, err)
		var b v1alpha1.BoundEndpoint
		if err := yaml.UnmarshalStrict(raw, &b); err != nil {
			t.Fatalf("%s: %v", input, err)
		}
		var out bytes.Buffer
		for _, s := range []*corev1.Service{l.upstreamService(&b, owner("Role")),
			l.targetService(&b, owner("ClusterRole"))} {
			doc, err := yaml.Marshal(s)
			must.Succeed(t, err)
			out.WriteString("---\n")
			out.Write(doc)
		}
		golden := strings.TrimSuffix(input, ".in.yaml") + ".out.yaml"
		if *update {
			must.Succeed(t, os.WriteFile(golden, out.Bytes(), 0o644))
		}
		want, err := os.ReadFile(golden)
		must.Succeed(t, err)
		if d := cmp.Diff(string(want), out.String()); d != "" {
			t.Errorf("%s: %s", golden, d)
		}
	}
}

func TestUpstreamName_ValidAndUnique(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, id := range []string{
		"ep-00000000000000000000000001", "a", "EP-1", "ep_1", "1ep", "ep-", "ep.1", "ep-1/../x",
		strings.Repeat("a", 63),
		strings.Repeat("a", 64), strings.Repeat("b", 253),
	} {
		name := upstreamName(id)
		if errs := validation.IsDNS1035Label(name); len(errs) > 0 {
			t.Errorf("%q: %q is no name: %v", id, name, errs)
		}
		if other, taken := seen[name]; taken {
			t.Errorf("%q and %q share %q", id, other, name)
		}
		seen[name] = id
	}
	if got := upstreamName("ep-1"); got != "ep-1" {
		t.Errorf("an id that is a name became %q", got)
	}
}

func TestProblemFromError(t *testing.T) {
	t.Parallel()
	services := schema.GroupResource{Resource: "services"}
	forbidden := func(text string) error { return apierrors.NewForbidden(services, "api", errors.New(text)) }
	terminating := apierrors.NewForbidden(services, "api",
		errors.New("unable to create new content in namespace demo because it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for _, tc := range []struct {
		name   string
		err    error
		reason string
		after  bool
		retry  bool // with back-off
	}{
		{"quota", forbidden("exceeded quota: none, requested: services=1, used: services=0, limited: services=0"),
			v1alpha1.ReasonQuotaExceeded, true, false},
		{"webhook", forbidden(`admission webhook "policy.example" denied the request: no`),
			v1alpha1.ReasonAdmissionDenied,
			true, false},
		{"policy", apierrors.NewInvalid(schema.GroupKind{Kind: "Service"},
			"ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no", nil), v1alpha1.ReasonAdmissionDenied,
			true,
			false},
		{"no right", forbidden(`User "x" cannot create resource "services" in API group "" in the namespace "demo"`),
			v1alpha1.ReasonNamespaceForbidden, true, false},
		{"terminating", terminating, v1alpha1.ReasonNamespaceTerminating, true, false},
		{"no namespace", apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "demo"),
			v1alpha1.ReasonNamespaceNotFound, true, false},
		{"addresses", apierrors.NewInternalError(errors.New("failed to allocate a serviceIP: range is full")),
			v1alpha1.ReasonClusterIPExhausted, true, false},
		{"invalid", apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "api", nil), v1alpha1.ReasonInvalidEndpoint,
			true,
			false},
		{"server", apierrors.NewInternalError(errors.New("etcdserver: request timed out")), v1alpha1.ReasonAPIError,
			false,
			true},
	} {
		p := problemFromError(tc.err)
		if p.Reason != tc.reason || (p.RetryAfter > 0) != tc.after || (p.Err != nil) != tc.retry || p.Quiet {
			t.Errorf("%s: got %+v", tc.name, p)
		}
	}
	p := problemFromError(errors.Join(nil, apierrors.NewConflict(services, "api", errors.New("changed"))))
	if !p.Quiet || p.RetryAfter != status.ConflictRetry {
		t.Errorf("a conflict: got %+v", p)
	}
}

func TestServiceTransform_KeepsOursAndOwnersOfOthers(t *testing.T) {
	t.Parallel()
	own := installation.Installation{Namespace: "fairlead", Release: "fairlead"}
	made := []metav1.ManagedFieldsEntry{{Manager: "kubectl-create", FieldsV1: &metav1.FieldsV1{}}, {Manager: "second"}}
	full := func(mark bool) *corev1.Service {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "api", UID: "u",
			ResourceVersion: "7",
			ManagedFields:   made,
			Labels:          map[string]string{"app": "x"}, Annotations: map[string]string{"big": "y"}},
			Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1"}}
		if mark {
			own.Mark(s)
		}
		return s
	}
	trim := ServiceTransform(own)
	got, _ := trim(full(true))
	if s := got.(*corev1.Service); s.Spec.ClusterIP == "" || s.ManagedFields != nil || !own.Owns(s) {
		t.Errorf("ours: %+v", s)
	}
	got, _ = trim(full(false))
	want := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "api", UID: "u",
		ResourceVersion: "7",
		ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubectl-create"}}}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if owner := describeOwner(own, got.(*corev1.Service)); owner != "another owner, who made it with kubectl-create" {
		t.Errorf("its owner: %s", owner)
	}
}
