// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/process"
)

// readiness becomes true when the caches are filled. A manager that does not lead is ready too. It
// is safe for concurrent use.
//
// A manager whose CRDs or rights are of an earlier version, as after an upgrade without them, is
// neither ready nor the leader: the managers before it, which need less, go on.
type readiness struct {
	process.EveryReplica
	log    logr.Logger
	filled atomic.Bool

	mu      sync.Mutex
	refused map[string]string // what was logged last, by kind
}

// Start is called once the caches are filled.
func (r *readiness) Start(ctx context.Context) error {
	r.filled.Store(true)
	<-ctx.Done()
	return nil
}

func (r *readiness) check(*http.Request) error {
	if !r.filled.Load() {
		return errors.New("the caches are not filled yet: is the API server reachable? The log tells what is missing")
	}
	return nil
}

// fillBeforeLeading makes the caches read, before there is a leader, what its controllers watch:
// besides the kinds that boundendpoint.Index names, and Namespaces, which every version may read.
func fillBeforeLeading(ctx context.Context, c cache.Cache, o settings) error {
	everywhere := len(o.AllowNamespaces) == 0
	kinds := []client.Object{&v1alpha1.KubernetesOperator{}}
	if o.DefaultAccess != "" {
		kinds = append(kinds, &networkingv1.NetworkPolicy{})
	}
	if o.DefaultAccess != "" && everywhere {
		kinds = append(kinds, &v1alpha1.EndpointAccess{})
	}
	if o.ForwarderService != "" && everywhere {
		kinds = append(kinds, &discoveryv1.EndpointSlice{})
	}
	for _, kind := range kinds {
		if _, err := c.GetInformer(ctx, kind); err != nil {
			return fmt.Errorf("preparing the cache of %T: %w", kind, err)
		}
	}
	return nil
}

// watchFailed is called when a watch of the caches fails. It logs what a manager waits for
// whose CRDs or rights are of an earlier version.
func (r *readiness) watchFailed(ctx context.Context, watch *toolscache.Reflector, err error) {
	toolscache.DefaultWatchErrorHandler(ctx, watch, err)
	var remedy string
	switch {
	case apierrors.IsNotFound(err):
		remedy = "apply the CRDs of this version's chart, or install it with crds.install=true"
	case apierrors.IsForbidden(err):
		remedy = "give the manager's account the rights that this version's chart renders"
	default:
		return
	}
	kind := watch.TypeDescription()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refused[kind] == err.Error() {
		return
	}
	if r.refused == nil {
		r.refused = map[string]string{}
	}
	r.refused[kind] = err.Error()
	text := "A kind cannot be read; what was read earlier stays"
	if !r.filled.Load() {
		text = "A kind cannot be read, and the manager does not begin without it"
	}
	r.log.Error(err, text, "kind", kind, "remedy", remedy)
}
