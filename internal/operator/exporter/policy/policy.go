// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policy reads the traffic policies of AgentEndpoints and CloudEndpoints, and compiles
// them, so that a mistake is found before the account is asked and is named by its place.
//
// What comes in: an object's spec.trafficPolicy, and ConfigMaps of its namespace. What goes out:
// the text that the account gets, or a status.Problem for the object's condition. The callers are the
// controllers of internal/operator/exporter.
package policy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

const (
	// readTimeout bounds the reading of a ConfigMap.
	readTimeout = 5 * time.Second
	// maxCached bounds the texts of ConfigMaps that are remembered, in bytes.
	maxCached = 16 << 20
	// maxShown is how many mistakes of a document a message names.
	maxShown = 3
)

// noSecrets is the remedy for a secret in a policy of the cluster. A login is only possible at a
// public endpoint, whose policy can lead to an endpoint of this cluster.
const noSecrets = "give this endpoint the binding internal, and let an administrator of the account make the " +
	"endpoint before it, whose policy has the secret and ends with forward-internal: " +
	"fairlead api endpoints create --url URL --binding BINDING --traffic-policy-file FILE"

// Options are what New needs.
type Options struct {
	// Metadata reads the metadata of ConfigMaps from a cache.
	Metadata client.Reader
	// Live reads ConfigMaps from the API server.
	Live       client.Reader
	InlineOnly bool // policies in ConfigMaps are refused, and no ConfigMap is read
}

// Reader reads policies. It remembers what it compiled of each version of a ConfigMap, so that
// thousands of objects can refer to one. It is safe for concurrent use.
type Reader struct {
	opt Options

	mu       sync.Mutex
	compiled map[cacheKey]compiled
	size     int // of the texts, in bytes
}

// cacheKey is a ConfigMap, and for what endpoints its policy was compiled.
type cacheKey struct {
	namespace, name, scheme, binding string
	sealing                          *trafficpolicy.Sealing
}

// compiled is the result for one version of a ConfigMap.
type compiled struct {
	version string
	text    string
	problem *status.Problem
}

// New returns a Reader.
func New(o Options) *Reader { return &Reader{opt: o, compiled: map[cacheKey]compiled{}} }

// ReadsConfigMaps reports whether policies may be in ConfigMaps.
func (r *Reader) ReadsConfigMaps() bool { return !r.opt.InlineOnly }

// ConfigMapName returns the name of the ConfigMap that holds the policy; "" if none does.
func ConfigMapName(p *v1alpha1.TrafficPolicy) string {
	if p == nil || p.TargetRef == nil || p.TargetRef.Kind != v1alpha1.KindConfigMap {
		return ""
	}
	return p.TargetRef.Name
}

// Text returns the text of a policy of an object in the namespace, for an endpoint with the scheme
// and binding, whose exporters apply it with a sealing; "" if it has none, or one without rules. The
// error is a *status.Problem if the object or the ConfigMap must be changed; any other error is to be
// retried.
func (r *Reader) Text(
	ctx context.Context, namespace string, p *v1alpha1.TrafficPolicy, scheme, binding string, s *trafficpolicy.Sealing,
) (string, error) {
	switch {
	case p == nil:
		return "", nil
	case (p.Inline == nil) == (p.TargetRef == nil):
		return "", status.Problemf(v1alpha1.ReasonPolicyInvalid,
			"spec.trafficPolicy: give exactly one of inline and targetRef")
	case p.Inline != nil:
		return inline(p.Inline.Raw, scheme, binding, s)
	case ConfigMapName(p) == "":
		return "", status.Problemf(v1alpha1.ReasonPolicyInvalid,
			"spec.trafficPolicy.targetRef %q: kind must be ConfigMap, with a name", p.TargetRef.Kind)
	case r.opt.InlineOnly:
		return "", status.Problemf(v1alpha1.ReasonPolicyInvalid, "spec.trafficPolicy.targetRef: ConfigMap %s is "+
			"not read, as the exporter runs with --inline-policies; write the policy inline", ConfigMapName(p))
	}
	return r.fromConfigMap(ctx, cacheKey{namespace, p.TargetRef.Name, scheme, binding, s})
}

// fromConfigMap returns the text of a ConfigMap's policy, compiled once for each of its versions.
func (r *Reader) fromConfigMap(ctx context.Context, key cacheKey) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	known := &metav1.PartialObjectMetadata{}
	known.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(v1alpha1.KindConfigMap))
	name := client.ObjectKey{Namespace: key.namespace, Name: key.name}
	err := r.opt.Metadata.Get(ctx, name, known)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading the metadata of ConfigMap %s: %w", name, err)
	}
	if err == nil {
		if c, ok := r.cached(key); ok && c.version == known.ResourceVersion {
			return c.result()
		}
	}
	var m corev1.ConfigMap
	switch err := r.opt.Live.Get(ctx, name, &m); {
	case apierrors.IsNotFound(err):
		r.forget(key)
		return "", status.Problemf(v1alpha1.ReasonPolicyNotFound,
			"spec.trafficPolicy.targetRef: there is no ConfigMap %s; create it, with the policy under the key %s",
			name, v1alpha1.TrafficPolicyKey)
	case apierrors.IsForbidden(err):
		return "", status.Problemf(v1alpha1.ReasonPolicyNotFound,
			"spec.trafficPolicy.targetRef: the exporter may not read ConfigMap %s; allow its ServiceAccount to get "+
				"ConfigMaps, or write the policy inline", name)
	case err != nil:
		return "", fmt.Errorf("reading ConfigMap %s: %w", name, err)
	}
	c := compiled{version: m.ResourceVersion}
	c.text, c.problem = compileConfigMap(&m, key)
	r.remember(key, c)
	return c.result()
}

// compileConfigMap returns the text of the ConfigMap's policy, or why it cannot be used.
func compileConfigMap(m *corev1.ConfigMap, key cacheKey) (string, *status.Problem) {
	text, ok := m.Data[v1alpha1.TrafficPolicyKey]
	if !ok {
		has := "it has none"
		if keys := slices.Sorted(maps.Keys(m.Data)); len(keys) > 0 {
			has = "it has " + strings.Join(keys[:min(len(keys), maxShown)], ", ")
		}
		return "", status.Problemf(v1alpha1.ReasonPolicyNotFound,
			"spec.trafficPolicy.targetRef: ConfigMap %s has no text under the key %s (%s); put the policy there",
			key.name, v1alpha1.TrafficPolicyKey, has)
	}
	used, problems := check(text, key.scheme, key.binding, key.sealing)
	if len(problems) == 0 {
		return used, nil
	}
	return "", invalid("ConfigMap "+key.name+", "+v1alpha1.TrafficPolicyKey+", ", problems,
		trafficpolicy.Problem.String)
}

// check compiles a document. used is the text that the account gets: "" for one without rules.
func check(text, scheme, binding string, s *trafficpolicy.Sealing) (used string, problems []trafficpolicy.Problem) {
	p, problems := trafficpolicy.Check(text, trafficpolicy.Options{Scheme: scheme, Binding: binding,
		NoSecrets: noSecrets, Sealing: s})
	if len(problems) > 0 || p.Summary().Rules == 0 {
		return "", problems
	}
	return text, nil
}

// invalid returns the Problem of a document with mistakes.
func invalid(of string, all []trafficpolicy.Problem, show func(trafficpolicy.Problem) string) *status.Problem {
	var texts []string
	for _, p := range all[:min(len(all), maxShown)] {
		texts = append(texts, show(p))
	}
	if more := len(all) - maxShown; more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	return status.Problemf(v1alpha1.ReasonPolicyInvalid, "%s", of+strings.Join(texts, "; "))
}

func (c compiled) result() (string, error) {
	if c.problem != nil {
		return "", c.problem
	}
	return c.text, nil
}

// size returns about how many bytes are remembered.
func (c compiled) size() int {
	n := len(c.text) + len(c.version)
	if c.problem != nil {
		n += len(c.problem.Message)
	}
	return n
}

func (r *Reader) cached(key cacheKey) (compiled, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.compiled[key]
	return c, ok
}

func (r *Reader) remember(key cacheKey, c compiled) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.size += c.size() - r.compiled[key].size(); r.size > maxCached {
		clear(r.compiled) // each is read again when it is next needed
		r.size = c.size()
	}
	r.compiled[key] = c
}

func (r *Reader) forget(key cacheKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.size -= r.compiled[key].size()
	delete(r.compiled, key)
}
