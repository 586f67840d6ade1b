// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"

	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/accessstatus"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/boundendpoint"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderstatus"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
)

// Forwarders is the state of the forwarders; *forwarderstatus.Reader implements it.
type Forwarders interface {
	manager.Runnable
	boundendpoint.Forwarders
	accessstatus.Forwarders
	// EdgeStatus returns whether all forwarders have a session with the service's edge, and the
	// problem if not.
	EdgeStatus() (known bool, problem string)
	// Legs returns the replicas of the service that the forwarders are connected to, as
	// KubernetesOperatorStatus.Legs.
	Legs() (known bool, legs string)
	// NetworkPoliciesReliedOn reports whether forwarders leave it to NetworkPolicies who may call, or
	// may do so.
	NetworkPoliciesReliedOn() bool
}

// newForwarderStatus returns the reader of the forwarders' status, and the source that it notifies
// at once; it notifies the given one of what may be late. It calls accessChanged when what they
// report of EndpointAccess objects may have changed.
func newForwarderStatus(
	mgr ctrl.Manager, o ManagerOptions, later *notify.Source, accessChanged func(),
) (Forwarders, *notify.Source, error) {
	now := notify.New(o.Namespace, 0)
	if o.Forwarders != nil {
		return o.Forwarders, now, nil
	}
	pods, err := forwarderstatus.WatchPods(mgr.GetConfig(), o.Namespace, labels.Set{
		"app.kubernetes.io/name": o.ForwarderName, "app.kubernetes.io/instance": o.ForwarderInstance,
	})
	if err != nil {
		return nil, nil, err
	}
	reader := forwarderstatus.New(forwarderstatus.Options{
		Pods: pods, Hostnames: hostnames(mgr.GetClient(), o.Namespace), NotifyNow: now.NotifyAll,
		NotifyLater: later.NotifyAll, AccessChanged: accessChanged,
		OperatorUID: operatorUID(mgr.GetClient(), client.ObjectKey{Namespace: o.Namespace, Name: o.Release}),
		Dial:        o.DialForwarder, Log: mgr.GetLogger().WithName("forwarders"),
	})
	return reader, now, reader.RegisterMetrics(registry(o))
}

// hostnames returns a function that lists the BoundEndpoints.
func hostnames(cached client.Client, namespace string) func(context.Context) []string {
	return func(ctx context.Context) []string {
		var list v1alpha1.BoundEndpointList
		if err := cached.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil // the cache has stopped
		}
		names := make([]string, len(list.Items))
		for i := range list.Items {
			names[i] = list.Items[i].Name
		}
		return names
	}
}

// operatorUID returns a function that reads the UID of the installation's KubernetesOperator; it is
// empty while there is none.
func operatorUID(cached client.Client, key client.ObjectKey) func(context.Context) string {
	return func(ctx context.Context) string {
		var o v1alpha1.KubernetesOperator
		_ = cached.Get(ctx, key, &o) // without it the forwarders refuse, and the reader retries
		return string(o.UID)
	}
}
