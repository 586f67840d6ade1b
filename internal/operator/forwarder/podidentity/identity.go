// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package podidentity

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/watch"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/caller"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// +kubebuilder:rbac:groups="",resources=pods;namespaces,verbs=list;watch

// lookupWait is how long Lookup waits for a missing address.
const lookupWait = 2 * time.Second

// api is the part of the API server that is used.
type api interface {
	List(ctx context.Context, o metav1.ListOptions) (*corev1.PodList, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// Pods finds the pods of a cluster by their addresses. Its methods are safe for concurrent use.
type Pods struct {
	table *table
	api   api
	log   *slog.Logger
}

// New returns the pods of the cluster of config, with the selected annotations; Run watches them.
// It needs the right to list and watch all pods.
func New(config *rest.Config, selected Annotations, log *slog.Logger) (*Pods, error) {
	c := rest.CopyConfig(config)
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	core, err := coreclient.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("making client for pods: %w", err)
	}
	return &Pods{table: newTable(selected), api: core.Pods(metav1.NamespaceAll), log: log}, nil
}

// LabelsChanged returns a channel that receives after labels of pods have changed: once for any
// number of changes, for one receiver.
func (p *Pods) LabelsChanged() <-chan struct{} { return p.table.labelsChanged }

// Current returns the pod that has the address now, or nil.
func (p *Pods) Current(ip netip.Addr) *caller.Pod {
	k, known, _ := p.table.find(canonical(ip))
	return newPodResult(k, known)
}

func newPodResult(k key, p pod) *caller.Pod {
	if k.name == "" {
		return nil
	}
	return &caller.Pod{Labels: p.labels, PodIdentity: tunnel.PodIdentity{
		Namespace: k.namespace.Value(), Name: k.name, ServiceAccount: p.account.Value(), Annotations: p.annotations,
	}}
}

// Lookup returns the pod that has the address, or nil. It waits at most 2 s, and only for an
// address that no pod has, while the cluster is alive.
func (p *Pods) Lookup(ctx context.Context, ip netip.Addr) *caller.Pod {
	ip = canonical(ip)
	var deadline <-chan time.Time
	for {
		k, pod, changed := p.table.lookup(ip)
		if k.name != "" || changed == nil {
			return newPodResult(k, pod)
		}
		if deadline == nil {
			deadline = time.After(lookupWait)
		}
		select {
		case <-changed:
		case <-deadline:
			p.table.recordMissing(ip)
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// Annotations select the annotations of pods to keep: names, and prefixes that end in "*". Empty
// selects none.
type Annotations []string

// Invalid returns the elements that are neither the name of an annotation nor a prefix of one.
func (a Annotations) Invalid() (invalid []string) {
	for _, name := range a {
		prefix, isPrefix := strings.CutSuffix(name, "*")
		if isPrefix && prefix != "" { // complete prefixes such as "example.com/" and "team-"
			prefix += "x"
		}
		if len(validation.IsQualifiedName(prefix)) > 0 {
			invalid = append(invalid, name)
		}
	}
	return invalid
}

// selectFrom returns the pod's selected annotations: nil if none are selected, otherwise not nil.
func (a Annotations) selectFrom(p *corev1.Pod) map[string]string {
	if len(a) == 0 {
		return nil
	}
	all := map[string]string{}
	for name, value := range p.Annotations {
		if a.matches(name) {
			all[name] = value
		}
	}
	return all
}

func (a Annotations) matches(name string) bool {
	for _, selected := range a {
		if prefix, ok := strings.CutSuffix(selected, "*"); name == selected || ok && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
