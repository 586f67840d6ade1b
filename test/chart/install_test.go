// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/internal/clusterset"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/testenv"
)

// cluster is a real API server to install into. Nothing runs pods there.
type cluster struct {
	*testenv.Kube
	t          *testing.T
	kubeconfig string
	config     *rest.Config
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	env, err := testenv.New(testenv.WithoutCRDs())
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must.Succeed(t, os.WriteFile(file, env.Kubeconfig, 0o600))
	return &cluster{Kube: testenv.NewKube(t, env.Config), t: t, kubeconfig: file, config: env.Config}
}

// install installs or upgrades a release with good values.
func (c *cluster) install(name, ns string, args ...string) string {
	c.t.Helper()
	out, err := helm(c.t, c.kubeconfig, validValues(),
		append([]string{"upgrade", "--install", name, chartDir, "--namespace", ns, "--create-namespace"}, args...)...)
	must.Succeed(c.t, err)
	return out
}

func (c *cluster) uninstall(name, ns string) {
	c.t.Helper()
	if _, err := helm(c.t, c.kubeconfig, nil, "uninstall", name, "--namespace", ns); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) crd() (*apiextensionsv1.CustomResourceDefinition, error) {
	var crd apiextensionsv1.CustomResourceDefinition
	err := c.Get(context.Background(), client.ObjectKey{Name: "boundendpoints.bindings.fairlead.dev"}, &crd)
	return &crd, err
}

func TestInstall(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	agent := "fairlead http 8080 --url http://hello.demo --binding kubernetes --server https://fairlead.example.com"
	c.checkNotes(release, namespace, []string{"get kubernetesoperators", "helm test " + release, agent + "\n"})
	c.checkNotes(release, namespace, []string{
		"get configmap " + release + `-ca -o jsonpath='{.data.ca\.crt}' > fairlead-ca.crt`,
		agent + " --ca-file fairlead-ca.crt\n",
	}, "--set", "api.caBundle=-----BEGIN CERTIFICATE-----")
	c.warnsOfSecondRelease()
	c.checkNotes(release, namespace, []string{"kind: AgentEndpoint", "get agentendpoints,cloudendpoints"},
		"--set", "export.enabled=true,credentials.exporterApiKey=flk_other")
	c.checkNotes(release, namespace, []string{"kind: ServiceExport", "that is called eu-1:", "get serviceexports",
		"at NAME.NAMESPACE.svc.clusterset.local:", clusterset.InstallCRDs + "\n"},
		"--set", "export.enabled=true,credentials.exporterApiKey=flk_other,export.services=true",
		"--set", "export.clusterID=eu-1,clusterset.enabled=true")
	c.checkPodAdmission()
	c.checkRights()
	c.checkAdmission()
	c.checkSecondReleaseKeepsCRDs()
	c.installsUnderSpecialNames()
	c.uninstallRemovesEverything()
	c.checkServerInstall()
	c.checkServerReplicas()
}

// checkPodAdmission makes the pods that the Deployments would, in a namespace that enforces the
// restricted standard.
func (c *cluster) checkPodAdmission() {
	c.t.Helper()
	ctx := context.Background()
	var ns corev1.Namespace
	must.Succeed(c.t, c.Get(ctx, client.ObjectKey{Name: namespace}, &ns))
	ns.Labels["pod-security.kubernetes.io/enforce"] = "restricted"
	must.Succeed(c.t, c.Update(ctx, &ns))
	var all appsv1.DeploymentList
	if err := c.List(ctx, &all, client.InNamespace(namespace)); err != nil || len(all.Items) != 3 {
		c.t.Fatalf("%d Deployments, %v", len(all.Items), err)
	}
	for _, d := range all.Items {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: d.Name,
			Labels: d.Spec.Template.Labels},
			Spec: d.Spec.Template.Spec}
		if err := c.Create(ctx, pod.DeepCopy(), client.DryRunAll); err != nil {
			c.t.Errorf("a pod of %s is refused: %v", d.Name, err)
		}
		pod.Spec.Containers[0].SecurityContext.Capabilities.Drop = nil
		if err := c.Create(ctx, pod, client.DryRunAll); !apierrors.IsForbidden(err) {
			c.t.Errorf("a pod that is not restricted got %v, so this test proves nothing", err)
		}
	}
}

// checkRights asks the API server itself.
func (c *cluster) checkRights() {
	c.t.Helper()
	const bindings, discovery, rbac = "bindings.fairlead.dev", "discovery.k8s.io", "rbac.authorization.k8s.io"
	for _, tt := range []struct {
		who, verb, group, resource, namespace, name string
		want                                        bool
	}{
		{"forwarder", "watch", bindings, "boundendpoints", namespace, "", true},
		{"forwarder", "watch", bindings, "kubernetesoperators", namespace, "", true},
		{"forwarder", "list", discovery, "endpointslices", namespace, "", true},
		{"forwarder", "get", "", "namespaces", namespace, namespace, true},
		{"forwarder", "get", "", "namespaces", "default", "default", false},
		{"forwarder", "list", "", "namespaces", "", "", true},
		{"forwarder", "delete", "", "namespaces", namespace, namespace, false},
		{"forwarder", "update", bindings, "boundendpoints", namespace, "", false},
		{"forwarder", "list", bindings, "boundendpoints", "default", "", false},
		{"forwarder", "list", "", "services", namespace, "", false},
		{"manager", "create", "", "services", "default", "", true},
		{"manager", "watch", "", "namespaces", "", "", true},
		{"manager", "update", discovery, "endpointslices", "default", "", true},
		{"manager", "patch", "admissionregistration.k8s.io", "validatingadmissionpolicies", "", "", false},
		{"manager", "update", bindings, "boundendpoints", namespace, "", true},
		{"manager", "patch", rbac, "clusterroles", "", namespace + "." + release + "-anchor", true},
		{"manager", "patch", rbac, "clusterroles", "", "cluster-admin", false},
		{"manager", "patch", rbac, "clusterrolebindings", "", namespace + "." + release + "-anchor", true},
		{"manager", "get", rbac, "roles", namespace, release + "-anchor", true},
		{"manager", "get", rbac, "rolebindings", namespace, release + "-anchor", true},
		{"manager", "patch", rbac, "rolebindings", namespace, release + "-anchor", false},
		{"manager", "list", bindings, "boundendpoints", "default", "", false},
		{"manager", "get", "", "secrets", namespace, release + "-credentials", false},
		{"manager", "get", "", "configmaps", namespace, release + "-authorities", false}, // without api.caBundle
		{"forwarder", "get", "", "secrets", namespace, release + "-credentials", false},
		{"exporter", "watch", bindings, "agentendpoints", "default", "", true},
		{"exporter", "update", bindings, "cloudendpoints/status", "default", "", true},
		{"exporter", "update", bindings, "agentendpoints", "default", "", false},
		{"exporter", "list", discovery, "endpointslices", "", "", true},
		{"exporter", "update", discovery, "endpointslices", "default", "", false},
		{"exporter", "update", "", "services", "default", "", false},
		{"exporter", "get", "", "namespaces", "kube-system", "kube-system", true},
		{"exporter", "list", "", "namespaces", "", "", false},
		{"exporter", "list", "", "pods", "default", "", false},
		{"exporter", "get", "", "secrets", "default", "any", false},
		{"exporter", "get", "", "secrets", namespace, release + "-credentials", false},
	} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + namespace + ":" + release + "-" + tt.who,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: tt.verb, Group: tt.group, Resource: tt.resource, Namespace: tt.namespace, Name: tt.name,
			},
		}}
		if err := c.Create(context.Background(), review); err != nil || review.Status.Allowed != tt.want {
			c.t.Errorf("%+v: allowed %v, %v", tt, review.Status.Allowed, err)
		}
	}
}

// checkSecondReleaseKeepsCRDs checks that a second release in another namespace works, and neither
// adopts nor deletes the CRDs.
func (c *cluster) checkSecondReleaseKeepsCRDs() {
	c.t.Helper()
	if notes := c.install(release, "second", "--set", "crds.keep=false"); !strings.Contains(notes,
		"they belong to the release "+release+" in "+namespace) {
		c.t.Errorf("the notes do not say whose the CRDs are:\n%s", notes)
	}
	c.uninstall(release, "second")
	crd, err := c.crd()
	if err != nil {
		c.t.Fatalf("the CRD went with the second release: %v", err)
	}
	if owner := crd.Annotations["meta.helm.sh/release-namespace"]; owner != namespace {
		c.t.Errorf("the CRD belongs to %q", owner)
	}
	// its own do not hinder an upgrade
	if notes := c.install(release, namespace, "--set", "manager.replicas=1"); strings.Contains(notes,
		"CRDs were there before") {
		c.t.Errorf("the notes disown the CRDs:\n%s", notes)
	}
	c.checkCRDHandOver()
}

// checkCRDHandOver transfers the CRDs between releases as the notes of the second release describe,
// and back.
func (c *cluster) checkCRDHandOver() {
	c.t.Helper()
	c.install("other", "third")
	for _, to := range []client.ObjectKey{{Namespace: "third", Name: "other"}, {Namespace: namespace, Name: release}} {
		for _, name := range []string{"agentendpoints.bindings.fairlead.dev",
			"boundendpoints.bindings.fairlead.dev", "cloudendpoints.bindings.fairlead.dev",
			"kubernetesoperators.bindings.fairlead.dev"} {
			crd := &apiextensionsv1.CustomResourceDefinition{}
			must.Succeed(c.t, c.Get(context.Background(), client.ObjectKey{Name: name}, crd))
			crd.Annotations["meta.helm.sh/release-namespace"] = to.Namespace
			crd.Annotations["meta.helm.sh/release-name"] = to.Name
			must.Succeed(c.t, c.Update(context.Background(), crd))
		}
		c.install(to.Name, to.Namespace)
		crd, err := c.crd()
		if owner := crd.Labels["app.kubernetes.io/instance"]; err != nil || owner != to.Name {
			c.t.Errorf("the upgraded release did not take the CRDs: they are %q's, %v", owner, err)
		}
	}
	c.uninstall("other", "third")
	if _, err := c.crd(); err != nil {
		c.t.Errorf("the CRDs went with a release that had handed them over: %v", err)
	}
}

// uninstallRemovesEverything: the CRDs stay by default, a later release finds them, and they go
// when that is asked for.
func (c *cluster) uninstallRemovesEverything() {
	c.t.Helper()
	c.uninstall(release, namespace)
	if _, err := c.crd(); err != nil {
		c.t.Errorf("the CRD did not stay: %v", err)
	}
	c.install(release, namespace, "--set", "crds.keep=false")
	c.uninstall(release, namespace)
	if crd, err := c.crd(); !apierrors.IsNotFound(err) && crd.DeletionTimestamp == nil {
		c.t.Errorf("the CRD stayed: %v", err)
	}
	ctx := context.Background()
	selector := client.MatchingLabels{"app.kubernetes.io/part-of": "fairlead"}
	for _, list := range []client.ObjectList{
		&rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBindingList{}, &rbacv1.RoleList{}, &appsv1.DeploymentList{},
		&corev1.SecretList{}, &corev1.ServiceAccountList{}, &corev1.ServiceList{},
		&admissionregistrationv1.ValidatingAdmissionPolicyList{},
		&admissionregistrationv1.ValidatingAdmissionPolicyBindingList{},
	} {
		must.Succeed(c.t, c.List(ctx, list, selector))
		if b, _ := json.Marshal(list); strings.Contains(string(b), release) {
			c.t.Errorf("left behind: %s", b)
		}
	}
}
