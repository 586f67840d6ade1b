// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/clusterset"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/serviceimport"
	real "github.com/fairlead-dev/fairlead/internal/operator/forwarder"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TestLabels_EqualOperators compares the doctor's constants with the operator's: the agent links no
// Kubernetes client and so has copies of them.
func TestLabels_EqualOperators(t *testing.T) {
	t.Parallel()
	own := installation.Installation{Namespace: "fairlead", Release: "blue"}
	s := &v1alpha1.BoundEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: "fairlead", Name: "api.demo"}}
	own.Mark(s)
	m := meta{Name: s.Name, Namespace: s.Namespace, Labels: s.Labels, Annotations: s.Annotations}
	if !m.isMarked() || m.Labels[labelInstallation] != installationID("fairlead/blue") ||
		m.Annotations[annotationInstallation] != "fairlead/blue" {
		t.Errorf("the doctor does not know these marks: %+v", m)
	}
	if annotationHostname != installation.AnnotationHostname {
		t.Errorf("%s is %s", annotationHostname, installation.AnnotationHostname)
	}
}

// TestObjects_DecodeAPITypes decodes the operator's objects and the forwarder's /status, as their
// own types encode them, into the doctor's types.
func TestObjects_DecodeAPITypes(t *testing.T) {
	t.Parallel()
	at := metav1.NewTime(now)
	var bound boundEndpoint
	through(t, v1alpha1.BoundEndpoint{
		Spec: v1alpha1.BoundEndpointSpec{ProjectionID: "ep-1", State: v1alpha1.StateReleased,
			Endpoints: []v1alpha1.EndpointRef{{ID: "ep-1", URL: "u"}},
			Ports: []v1alpha1.BoundPort{{Port: 80, Scheme: "http", TargetPort: 20000, State: v1alpha1.StateReleased,
				RemoveAfter: &at}}},
		Status: v1alpha1.BoundEndpointStatus{ClusterIP: "10.0.0.1", Target: "ep-1.fairlead", Forwarders: "2/2",
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady}}},
	}, &bound)
	p := bound.Spec.Ports[0]
	if bound.Spec.ProjectionID != "ep-1" || bound.Spec.State != "Released" || bound.Spec.Endpoints[0].URL != "u" ||
		p.Port != 80 || p.TargetPort != 20000 ||
		p.State != "Released" || !p.RemoveAfter.Equal(now) || bound.Status.Target != "ep-1.fairlead" ||
		bound.Status.Forwarders != "2/2" || bound.Status.Conditions[0].Type != "Ready" {
		t.Errorf("BoundEndpoint: %+v", bound)
	}
	var operator kubernetesOperator
	through(t, v1alpha1.KubernetesOperator{Spec: v1alpha1.KubernetesOperatorSpec{BindingEnabled: true,
		EndpointSelector: "s"},
		Status: v1alpha1.KubernetesOperatorStatus{OperatorID: "op-1", AccountID: "ac-1"}}, &operator)
	if !operator.Spec.BindingEnabled || operator.Spec.EndpointSelector != "s" || operator.Status.AccountID != "ac-1" {
		t.Errorf("KubernetesOperator: %+v", operator)
	}
	var exported agentEndpoint
	through(t, v1alpha1.AgentEndpoint{ObjectMeta: metav1.ObjectMeta{Generation: 3},
		Spec: v1alpha1.AgentEndpointSpec{URL: "u", Upstream: v1alpha1.Upstream{URL: "http://api:8080"}},
		Status: v1alpha1.AgentEndpointStatus{ObservedGeneration: 3,
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionBound}}}}, &exported)
	if exported.Spec.URL != "u" || exported.Spec.Upstream.URL != "http://api:8080" || exported.isStale() ||
		exported.Status.Conditions[0].Type != "Bound" {
		t.Errorf("AgentEndpoint: %+v", exported)
	}
	var status forwarderStatus
	through(t, real.Status{Session: real.SessionStatus{Up: true, Since: now, Address: "a", Error: "e"},
		Listeners: []real.ListenerStatus{{
			Port: 20000, Listening: true, Error: "x", Connections: 3, LastSuccess: &now,
			LastFailure: &real.Failure{At: now, Reason: "upstream", Message: "m"},
		}}, SealedPaths: tunnel.SealedPaths{Raw: 2, Mux: 1, Paused: map[tunnel.PairPause]int{tunnel.PairsCut: 1}},
	}, &status)
	if p := status.SealedPaths; p == nil || p.Raw != 2 || p.Mux != 1 || p.Paused["cut"] != 1 {
		t.Errorf("sealed paths: %+v", p)
	}
	for _, why := range tunnel.PairPauses() {
		if whyInMux[string(why)] == "" {
			t.Errorf("reason %s is not explained", why)
		}
	}
	var enforced forwarderStatus
	through(t, real.Status{Access: &real.AccessStatus{PodIdentity: true, NetworkPolicies: true, Default: "deny",
		Policies: map[string]string{"demo": "a1"}}}, &enforced)
	if a := enforced.Access; a == nil || !a.PodIdentity || !a.NetworkPolicies || a.Default != "deny" ||
		a.Policies["demo"] != "a1" {
		t.Errorf("access: %+v", a)
	}
	l := status.listener(20000)
	if s := status.Session; l == nil || !s.Up || !s.Since.Equal(now) || s.Address != "a" || s.Error != "e" ||
		!l.Listening || l.Error != "x" ||
		*l.Connections != 3 || !l.LastSuccess.Equal(now) || !l.LastFailure.At.Equal(now) ||
		l.LastFailure.Reason != "upstream" || l.LastFailure.Message != "m" {
		t.Errorf("status: %+v", status)
	}
}

func through(t *testing.T, from, to any) {
	t.Helper()
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	must.Succeed(t, err)
}

func TestExecRunner_LimitsTimeAndOutput(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "kubectl")
	must.Succeed(t, os.WriteFile(script,
		[]byte("#!/bin/sh\necho out; echo err >&2; [ \"$1\" = hang ] && exec sleep 60; exit $1\n"), 0o700))
	run := ExecRunner(script)
	if out, stderr, err := run(t.Context(), []string{"0"}); err != nil || string(out) != "out\n" ||
		string(stderr) != "err\n" {
		t.Errorf("got %q, %q, %v", out, stderr, err)
	}
	if _, stderr, err := run(t.Context(), []string{"3"}); err == nil || string(stderr) != "err\n" {
		t.Errorf("got %q, %v", stderr, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := run(ctx, []string{"hang"}); err == nil {
		t.Error("a kubectl that hangs is no error")
	}
	if _, _, err := ExecRunner("no-such-kubectl-anywhere")(t.Context(), nil); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	l := limited{limit: 3}
	if n, err := l.Write([]byte("abcdef")); n != 6 || err != nil || strings.TrimSpace(l.String()) != "abc" {
		t.Errorf("kept %q, %d, %v", l.String(), n, err)
	}
}

// TestClusterset_ConstantsAreTheModules compares the doctor's words with those of the module of the
// Multi-Cluster Services API, which the agent does not link.
func TestClusterset_ConstantsAreTheModules(t *testing.T) {
	t.Parallel()
	for have, want := range map[string]string{
		"kubectl apply " + crdFlags: clusterset.InstallCRDs,
		labelServiceName:            v1beta1.LabelServiceName,
		labelSourceCluster:          v1beta1.LabelSourceCluster,
		annotationDerived:           serviceimport.AnnotationDerivedService,
		conditionImports:            v1alpha1.ConditionServiceImportsReady,
		serviceExportKind:           v1beta1.ServiceExportPluralName + ".v1beta1." + v1beta1.GroupName,
		serviceImportKind:           v1beta1.ServiceImportPluralName + ".v1beta1." + v1beta1.GroupName,
	} {
		if have != want {
			t.Errorf("%s is called %s", have, want)
		}
	}
	var imported serviceImport
	through(t, v1beta1.ServiceImport{Spec: v1beta1.ServiceImportSpec{Type: v1beta1.Headless, IPs: []string{"10.0.0.1"},
		Ports: []v1beta1.ServicePort{{Name: "tcp", Protocol: "TCP", Port: 42}}},
		Status: v1beta1.ServiceImportStatus{Clusters: []v1beta1.ClusterStatus{{Cluster: "a"}},
			Conditions: []metav1.Condition{{Type: string(v1beta1.ServiceImportConditionReady)}}}}, &imported)
	if imported.Spec.Type != "Headless" || imported.Spec.IPs[0] != "10.0.0.1" || imported.clusters()[0] != "a" ||
		imported.Spec.Ports[0] != (importPort{"tcp", "TCP", 42}) || imported.Status.Conditions[0].Type != "Ready" {
		t.Errorf("ServiceImport: %+v", imported)
	}
	var exported serviceExport
	through(t, v1beta1.ServiceExport{Status: v1beta1.ServiceExportStatus{Conditions: []metav1.Condition{
		{Type: string(v1beta1.ServiceExportConditionConflict), Status: "True"}}}}, &exported)
	if exported.Status.Conditions.Get("Conflict").Status != "True" {
		t.Errorf("ServiceExport: %+v", exported)
	}
	for have, want := range map[string]v1beta1.ServiceExportConditionType{"Valid": v1beta1.ServiceExportConditionValid,
		"Ready": v1beta1.ServiceExportConditionReady} {
		if have != string(want) {
			t.Errorf("the condition %s is called %s", have, want)
		}
	}
}

// TestUpstreamOf_AgentEndpoint: the Service and port that spec.upstream.url names.
func TestUpstreamOf_AgentEndpoint(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"http://api:8080": "demo/api:8080", "http://api": "demo/api:80", "https://api/": "demo/api:443",
		"tcp://db.data:5432": "data/db:5432", "http://api.shop.svc:81": "shop/api:81",
		"http://api.shop.svc.cluster.local:82/": "shop/api:82", "": "demo/:0",
	} {
		a := agentEndpoint{Metadata: meta{Namespace: "demo"}}
		a.Spec.Upstream.URL = url
		ns, name, port := a.upstream()
		if got := fmt.Sprintf("%s/%s:%d", ns, name, port); got != want {
			t.Errorf("%s is %s, want %s", url, got, want)
		}
	}
}
