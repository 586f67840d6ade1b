// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package podidentity

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch

// lookupWait is how long Lookup waits for a missing address.
const lookupWait = 2 * time.Second

// Pods knows the pods of a cluster. Its methods are safe for concurrent use.
type Pods struct {
	table *table
	api   api
	log   *slog.Logger
}

// New returns the pods of the cluster of config, with the selected annotations; Run watches them.
// It needs the right to list and watch all pods.
func New(config *rest.Config, selected Annotations, log *slog.Logger) (*Pods, error) {
	api, err := newServer(config, selected)
	if err != nil {
		return nil, err
	}
	return &Pods{table: newTable(selected), api: api, log: log}, nil
}

// Lookup returns the pod that has the address, or nil. It waits at most 2 s, and only for an
// address that no pod has, while the cluster is alive.
func (p *Pods) Lookup(ctx context.Context, ip netip.Addr) *tunnel.PodIdentity {
	ip = canonical(ip)
	var deadline <-chan time.Time
	for {
		k, pod, changed := p.table.lookup(ip)
		if k.name != "" {
			return &tunnel.PodIdentity{Namespace: k.namespace.Value(), Name: k.name,
				ServiceAccount: pod.account.Value(),
				Annotations:    pod.annotations}
		}
		if changed == nil {
			return nil
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
