// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/policy"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
)

// configMaps are the ConfigMaps of an API server, and of a cache that is up to date.
type configMaps struct {
	client.Reader // nil: nothing else is read
	maps          map[string]*corev1.ConfigMap
	err           error // of a read; nil: none
	reads         int   // of data
}

func (c *configMaps) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	m := c.maps[key.String()]
	switch o := o.(type) {
	case *metav1.PartialObjectMetadata:
		if m != nil {
			o.ObjectMeta = m.ObjectMeta
			return nil
		}
	case *corev1.ConfigMap:
		c.reads++
		if c.err != nil {
			return c.err
		}
		if m != nil {
			m.DeepCopyInto(o)
			return nil
		}
	}
	return apierrors.NewNotFound(corev1.Resource("configmaps"), key.Name)
}

func configMap(version string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}, Data: data}
}

func newReader(maps map[string]*corev1.ConfigMap) (*policy.Reader, *configMaps) {
	c := &configMaps{maps: maps}
	return policy.New(policy.Options{Metadata: c, Live: c}), c
}

func inline(json string) *v1alpha1.TrafficPolicy {
	return &v1alpha1.TrafficPolicy{Inline: &runtime.RawExtension{Raw: []byte(json)}}
}

func ref(name string) *v1alpha1.TrafficPolicy {
	return &v1alpha1.TrafficPolicy{TargetRef: &v1alpha1.TrafficPolicyRef{Kind: v1alpha1.KindConfigMap, Name: name}}
}

const deny = "on_http_request:\n- actions: [{type: deny}]\n"

func TestText_NamesPlaceOfMistake(t *testing.T) {
	t.Parallel()
	r, _ := newReader(map[string]*corev1.ConfigMap{
		"demo/typo": configMap("1",
			map[string]string{"policy.yaml": "on_http_request:\n- actions:\n  - type: denny\n"}),
		"demo/secret": configMap("1", map[string]string{"policy.yaml": basicAuth}),
		"demo/other":  configMap("1", map[string]string{"policy.yml": deny}),
		"demo/long": configMap("1",
			map[string]string{"policy.yaml": deny + strings.Repeat("#", account.MaxTrafficPolicy)}),
	})
	for name, c := range map[string]struct {
		policy *v1alpha1.TrafficPolicy
		want   []string // reason, then parts of the message
	}{
		"inline": {inline(`{"on_http_request":[{"name":"a","actions":[{"type":"denny"}]}]}`),
			[]string{"PolicyInvalid", "spec.trafficPolicy.inline.on_http_request[0].actions[0].type: ", "deny"}},
		"inline, a missing key": {
			inline(`{"on_http_request":[{"actions":[{"config":{"on_error":"halt"},"type":"forward-internal"}]}]}`),
			[]string{"PolicyInvalid", "spec.trafficPolicy.inline.on_http_request[0].actions[0].config: ",
				"http://api.internal"}},
		"inline, an expression": {
			inline(`{"on_http_request":[{"expressions":["conn.client_ip == req.metod"],"actions":[{"type":"deny"}]}]}`),
			[]string{"PolicyInvalid", "inline.on_http_request[0].expressions[0]: ", "did you mean req.method"}},
		"inline, a secret": {
			inline(`{"on_http_request":[{"actions":[{"type":"basic-auth","config":{"credentials":["a:hushhush"]}}]}]}`),
			[]string{"PolicyInvalid", ".actions[0].config.credentials: ", "is a secret",
				"fairlead api endpoints create",
				"forward-internal"}},
		"ConfigMap": {ref("typo"),
			[]string{"PolicyInvalid", "ConfigMap typo, policy.yaml, line 3, column 11: ", "deny"}},
		"ConfigMap with a secret": {ref("secret"), []string{"PolicyInvalid", "line 4, column 14: ", "is a secret"}},
		"no ConfigMap": {ref("none"),
			[]string{"PolicyNotFound", "there is no ConfigMap demo/none", "policy.yaml"}},
		"no such key": {ref("other"),
			[]string{"PolicyNotFound", "ConfigMap other has no text under the key policy.yaml (it has policy.yml)"}},
		"too long": {ref("long"), []string{"PolicyInvalid", "at most 65536"}},
		"neither": {&v1alpha1.TrafficPolicy{},
			[]string{"PolicyInvalid", "exactly one of inline and targetRef"}},
		"both": {&v1alpha1.TrafficPolicy{Inline: inline(`{}`).Inline, TargetRef: ref("typo").TargetRef},
			[]string{"PolicyInvalid", "exactly one of inline and targetRef"}},
		"a Secret": {&v1alpha1.TrafficPolicy{TargetRef: &v1alpha1.TrafficPolicyRef{Kind: "Secret", Name: "x"}},
			[]string{"PolicyInvalid", "kind must be ConfigMap"}},
	} {
		text, err := r.Text(t.Context(), "demo", c.policy, "http", "kubernetes", nil)
		p := status.AsProblem(err)
		if p == nil || text != "" || p.Reason != c.want[0] {
			t.Errorf("%s: got %q, %v", name, text, err)
			continue
		}
		for _, part := range c.want[1:] {
			if !strings.Contains(p.Message, part) {
				t.Errorf("%s: %q is not in %q", name, part, p.Message)
			}
		}
		if strings.Contains(p.Message, "hush") {
			t.Errorf("%s: the message has the secret: %s", name, p.Message)
		}
	}
}

const basicAuth = "on_http_request:\n- actions:\n  - type: basic-auth\n    config: {credentials: ['a:hushhush']}\n"

func TestText_ReturnsDocument(t *testing.T) {
	t.Parallel()
	r, _ := newReader(map[string]*corev1.ConfigMap{
		"demo/deny":  configMap("1", map[string]string{"policy.yaml": deny}),
		"demo/empty": configMap("1", map[string]string{"policy.yaml": "# nothing\n"}),
	})
	for name, c := range map[string]struct {
		policy *v1alpha1.TrafficPolicy
		want   string
	}{
		"none":            {nil, ""},
		"ConfigMap":       {ref("deny"), deny},
		"without rules":   {ref("empty"), ""},
		"an empty object": {inline(`{}`), ""},
		"inline": {inline(`{"on_http_request":[{"actions":[{"type":"deny"}]}]}`), `{
  "on_http_request": [
    {
      "actions": [
        {
          "type": "deny"
        }
      ]
    }
  ]
}`},
	} {
		text, err := r.Text(t.Context(), "demo", c.policy, "http", "kubernetes", nil)
		if text != c.want || err != nil {
			t.Errorf("%s: got %q, %v", name, text, err)
		}
	}
	// A tcp endpoint has other phases: what was compiled for one scheme does not count for another.
	if _, err := r.Text(t.Context(), "demo", ref("deny"), "tcp", "kubernetes", nil); status.AsProblem(err) == nil {
		t.Errorf("a policy of http for a tcp endpoint: %v", err)
	}
}

func TestText_ReadsEachVersionOnce(t *testing.T) {
	t.Parallel()
	maps := map[string]*corev1.ConfigMap{"demo/deny": configMap("1", map[string]string{"policy.yaml": deny})}
	r, api := newReader(maps)
	read := func(want string, reads int) {
		t.Helper()
		for range 3 {
			text, err := r.Text(t.Context(), "demo", ref("deny"), "http", "kubernetes", nil)
			if text != want || err != nil {
				t.Errorf("got %q, %v", text, err)
			}
		}
		if api.reads != reads {
			t.Errorf("%d reads, want %d", api.reads, reads)
		}
	}
	read(deny, 1)
	maps["demo/deny"] = configMap("2", map[string]string{"policy.yaml": "# new\n" + deny})
	read("# new\n"+deny, 2)

	maps["demo/deny"] = configMap("3", nil)
	api.err = errors.New("the API server is away")
	if _, err := r.Text(t.Context(), "demo", ref("deny"), "http", "kubernetes", nil); err == nil ||
		status.AsProblem(err) != nil {
		t.Errorf("an unreadable ConfigMap: %v, want an error to retry", err)
	}
	api.err = apierrors.NewForbidden(corev1.Resource("configmaps"), "deny", nil)
	if _, err := r.Text(t.Context(), "demo", ref("deny"), "http", "kubernetes", nil); status.AsProblem(err) == nil {
		t.Errorf("a ConfigMap that may not be read: %v, want a problem", err)
	}
}
