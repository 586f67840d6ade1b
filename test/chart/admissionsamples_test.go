// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

const (
	admissionDir    = "../../docs/admission"
	admissionImage  = "ghcr.io/fairlead-dev/fairlead-operator"
	admissionDigest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

// admissionSamples returns the objects of a folder of docs/admission by the names of their files.
func admissionSamples(t *testing.T, folder string) map[string]rendered {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(admissionDir, folder, "*.yaml"))
	must.Succeed(t, err)
	all := map[string]rendered{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must.Succeed(t, err)
		all[filepath.Base(file)] = parse(t, string(text))
	}
	return all
}

// at returns the value at a path of fields, nil without one. A number is an index of a list.
func at(o any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			fields, _ := o.(map[string]any)
			o = fields[step]
		case int:
			items, _ := o.([]any)
			if step >= len(items) {
				return nil
			}
			o = items[step]
		}
	}
	return o
}

// TestAdmissionSamples_AgreeBetweenEngines checks that the forms for Kyverno and Gatekeeper match
// the objects, and have the expressions and the messages, of the form that
// TestAdmissionSamples_Decide gives to an API server.
func TestAdmissionSamples_AgreeBetweenEngines(t *testing.T) {
	t.Parallel()
	kyverno := admissionSamples(t, "kyverno")
	templates, constraints := admissionSamples(t, "gatekeeper/templates"), admissionSamples(t, "gatekeeper/constraints")
	policies := admissionSamples(t, "kubernetes")
	if n := len(policies); n != 4 || len(kyverno) != n || len(templates) != n || len(constraints) != n {
		t.Fatalf("%d policies, %d of Kyverno, %d templates, %d constraints", n, len(kyverno), len(templates),
			len(constraints))
	}
	for name, objects := range policies {
		same := func(what string, want, got any) {
			t.Helper()
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s (-Kubernetes): %s", name, what, diff)
			}
		}
		if len(objects) != 2 || len(kyverno[name]) != 1 || len(templates[name]) != 1 || len(constraints[name]) != 1 {
			t.Fatalf("%s: a form is missing", name)
		}
		policy, binding := objects[0].Object, objects[1].Object
		source := at(templates[name][0].Object, "spec", "targets", 0, "code", 0, "source")
		for _, field := range []string{"variables", "validations", "failurePolicy"} {
			same("Kyverno's "+field, at(policy, "spec", field), at(kyverno[name][0].Object, "spec", field))
			same("Gatekeeper's "+field, at(policy, "spec", field), at(source, field))
		}
		rules := at(policy, "spec", "matchConstraints", "resourceRules")
		selector := at(binding, "spec", "matchResources", "namespaceSelector")
		same("Kyverno's rules", rules, at(kyverno[name][0].Object, "spec", "matchConstraints", "resourceRules"))
		same("Kyverno's namespaces", selector,
			at(kyverno[name][0].Object, "spec", "matchConstraints", "namespaceSelector"))
		constraint := constraints[name][0].Object
		same("the constraint's kind", at(templates[name][0].Object, "spec", "crd", "spec", "names", "kind"),
			at(constraint, "kind"))
		same("the constraint's resources", matchedResources(rules), constrainedResources(constraint))
		same("the constraint's namespaces", selector, constrainedNamespaces(constraint))
	}
}

// matchedResources returns the resources of a policy's rules, without subresources, which
// Gatekeeper sees as objects of the same kind.
func matchedResources(rules any) []string {
	var all []string
	for _, resource := range at(rules, 0, "resources").([]any) {
		if !strings.Contains(resource.(string), "/") {
			all = append(all, at(rules, 0, "apiGroups", 0).(string)+"/"+resource.(string))
		}
	}
	return all
}

func constrainedResources(constraint any) []string {
	var all []string
	group := at(constraint, "spec", "match", "kinds", 0, "apiGroups", 0).(string)
	for _, kind := range at(constraint, "spec", "match", "kinds", 0, "kinds").([]any) {
		plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: group, Kind: kind.(string)})
		all = append(all, group+"/"+plural.Resource)
	}
	return all
}

// constrainedNamespaces returns the constraint's namespaces as the selector that the others have.
func constrainedNamespaces(constraint any) any {
	if names := at(constraint, "spec", "match", "namespaces"); names != nil {
		return map[string]any{"matchExpressions": []any{
			map[string]any{"key": corev1.LabelMetadataName, "operator": "In", "values": names}}}
	}
	return at(constraint, "spec", "match", "namespaceSelector")
}

// TestAdmissionSamples_Decide gives the policies to an API server, installs both charts under them,
// and tries what they are to refuse.
func TestAdmissionSamples_Decide(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	for _, objects := range admissionSamples(t, "kubernetes") {
		for _, o := range objects {
			c.MustCreate(&o)
		}
	}
	c.checkNamespaceSample()
	c.installPinned(release, chartDir, exportingValues())
	c.installPinned(serverRelease, serverDir, values{})
	c.checkPodSample()
	c.checkObjectSamples()
}

// installPinned installs a release with the image's digest, into the namespace that is there.
func (c *cluster) installPinned(name, chart string, v values) {
	c.t.Helper()
	if _, err := helm(c.t, c.kubeconfig, v.set("image.digest", admissionDigest), "install", name, chart,
		"--namespace", namespace); err != nil {
		c.t.Error(err)
	}
}

// checkNamespaceSample leaves the namespace of the release behind.
func (c *cluster) checkNamespaceSample() {
	c.t.Helper()
	const refusal = "pod-security.kubernetes.io/enforce=restricted"
	ctx := c.t.Context()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	c.awaitRefusal(refusal, func() error { return c.Create(ctx, ns.DeepCopy(), client.DryRunAll) })
	ns.Labels = map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
	c.MustCreate(ns, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
	for what, labels := range map[string]map[string]string{
		"a weaker label":      {corev1.LabelMetadataName: namespace, "pod-security.kubernetes.io/enforce": "baseline"},
		"no label":            {corev1.LabelMetadataName: namespace},
		"not even its name":   {},
		"the name of another": {corev1.LabelMetadataName: "other"},
	} {
		changed := ns.DeepCopy()
		changed.Labels = labels
		c.expectRefusal(what, refusal, c.Update(ctx, changed, client.DryRunAll))
	}
	ns.Labels["team"] = "platform"
	c.expectRefusal("another label", "", c.Update(ctx, ns.DeepCopy(), client.DryRunAll))
}

// podsOfCharts returns the pods that the two charts run, those of `helm test` included.
func podsOfCharts(t *testing.T) []*corev1.Pod {
	t.Helper()
	all := append(render(t, exportingValues().set("image.digest", admissionDigest)),
		renderServer(t, values{}.set("image.digest", admissionDigest))...)
	var pods []*corev1.Pod
	for _, o := range all {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: o.GetName()}}
		switch o.GetKind() {
		case "Pod":
			pod.Spec = get[corev1.Pod](t, all, "Pod", o.GetName()).Spec
		case "Deployment", "StatefulSet":
			template, _, _ := unstructured.NestedMap(o.Object, "spec", "template")
			pod.Spec = get[corev1.Pod](t, rendered{{Object: map[string]any{"kind": "Pod", "spec": template["spec"],
				"metadata": map[string]any{"name": o.GetName()}}}}, "Pod", o.GetName()).Spec
		default:
			continue
		}
		pods = append(pods, pod)
	}
	return pods
}

func (c *cluster) checkPodSample() {
	c.t.Helper()
	const foreign, tagged = "runs only images of ghcr.io/fairlead-dev/", "has no digest: set image.digest"
	const seccomp, writable = "seccompProfile.type to RuntimeDefault", "readOnlyRootFilesystem to true"
	pods, ctx := podsOfCharts(c.t), c.t.Context()
	if len(pods) < 6 {
		c.t.Fatalf("the charts have only %d pods", len(pods))
	}
	local := &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: ptr.To("own.json")}
	image := func(image string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Containers[0].Image = image }
	}
	for _, tt := range []struct {
		what, refusal string
		change        func(*corev1.Pod)
	}{
		{"a tag", tagged, image(admissionImage + ":v1")},
		{"a digest that is cut", tagged, image(admissionImage + "@sha256:e3b0")},
		{"another registry", foreign, image("docker.io/library/busybox@" + admissionDigest)},
		{"a longer name", foreign, image("ghcr.io/fairlead-dev.example.com/x@" + admissionDigest)},
		{"an init container", foreign, func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "busybox@" + admissionDigest,
				SecurityContext: p.Spec.Containers[0].SecurityContext}}
		}},
		{"a profile of the node", seccomp, func(p *corev1.Pod) { p.Spec.SecurityContext.SeccompProfile = local }},
		{"a container's profile", seccomp, func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext.SeccompProfile = local
		}},
		{"a writable root", writable, func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem = nil
		}},
	} {
		changed := pods[0].DeepCopy()
		tt.change(changed)
		c.awaitRefusal(tt.refusal, func() error { return c.Create(ctx, changed.DeepCopy(), client.DryRunAll) })
		changed.Namespace = "other"
		c.expectRefusal(tt.what+" in another namespace", "", c.Create(ctx, changed, client.DryRunAll))
	}
	for _, pod := range pods {
		c.expectRefusal(pod.Name, "", c.Create(ctx, pod.DeepCopy(), client.DryRunAll))
	}
	c.MustCreate(pods[0])
	changed := pods[0].DeepCopy()
	image("busybox@" + admissionDigest)(changed)
	c.expectRefusal("another image later", foreign, c.Update(ctx, changed, client.DryRunAll))
	debugged := pods[0].DeepCopy()
	debugged.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.
		EphemeralContainerCommon{Name: "debug", Image: "busybox@" + admissionDigest,
		SecurityContext: pods[0].Spec.Containers[0].SecurityContext}}}
	c.expectRefusal("kubectl debug", foreign,
		c.SubResource("ephemeralcontainers").Update(ctx, debugged.DeepCopy(), client.DryRunAll))
	debugged.Spec.EphemeralContainers[0].Image = admissionImage + "@" + admissionDigest
	c.expectRefusal("kubectl debug with an image that is admitted", "",
		c.SubResource("ephemeralcontainers").Update(ctx, debugged, client.DryRunAll))
}

// checkObjectSamples tries objects of Fairlead's own kinds. Refused ones come first: they show that
// the API server knows the policy.
func (c *cluster) checkObjectSamples() {
	c.t.Helper()
	const cluster, public = "name the namespaces in each spec.from[].namespaceSelector", "spec.bindings: public"
	c.MustCreate(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web",
		Labels: map[string]string{"admission.example.com/public-endpoints": "allowed"}}})
	const agent = "url: https://shop.example.com, upstream: {url: 'http://shop:80'}, bindings: "
	for _, tt := range []struct{ refusal, kind, namespace, spec string }{
		{cluster, "EndpointAccess", "other", "endpoints: [api], from: [{namespaceSelector: {}}]"},
		{cluster, "EndpointAccess", "other",
			"endpoints: [api], from: [{namespaceSelector: {}, serviceAccounts: [web]}]"},
		{cluster, "EndpointAccess", "other", "endpoints: [api], from: [{podSelector: {}}, {namespaceSelector: " +
			"{matchExpressions: [{key: team, operator: NotIn, values: [data]}]}}]"},
		{cluster, "EndpointAccess", "other", "endpoints: [api], from: [{namespaceSelector: " +
			"{matchExpressions: [{key: kubernetes.io/metadata.name, operator: Exists}]}}]"},
		{"", "EndpointAccess", "other", "endpoints: [api]"},
		{"", "EndpointAccess", "other", "endpoints: [api], from: [{podSelector: {}}]"},
		{"", "EndpointAccess", "other", "endpoints: [api], from: [{namespaceSelector: {matchLabels: {team: data}}}]"},
		{"", "EndpointAccess", "other", "endpoints: [api], from: [{namespaceSelector: " +
			"{matchExpressions: [{key: team, operator: In, values: [data]}]}}]"},
		{public, "AgentEndpoint", "other", agent + "[public]"},
		{"", "AgentEndpoint", "web", agent + "[public]"},
		{"", "AgentEndpoint", "other", "url: http://shop.other, upstream: {url: 'http://shop:80'}"},
		{public, "CloudEndpoint", "other", "url: http://shop.example.com, backend: {id: b}, bindings: [public]"},
		{"", "CloudEndpoint", "web", "url: http://shop.example.com, backend: {id: b}, bindings: [public]"},
		{"", "CloudEndpoint", "other", "url: http://shop.other, backend: {id: b}, bindings: [kubernetes]"},
	} {
		o := parse(c.t, "apiVersion: bindings.fairlead.dev/v1alpha1\nkind: "+tt.kind+
			"\nmetadata: {name: a, namespace: "+tt.namespace+"}\nspec: {"+tt.spec+"}\n")[0]
		write := func() error { return c.Create(c.t.Context(), o.DeepCopy(), client.DryRunAll) }
		if tt.refusal != "" {
			c.awaitRefusal(tt.refusal, write)
			continue
		}
		c.expectRefusal(tt.kind+" in "+tt.namespace+": "+tt.spec, "", write())
	}
}
