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
		Pods: pods, NotifyNow: now.NotifyAll,
		Hostnames:   func(ctx context.Context) []string { return hostnames(ctx, mgr.GetClient(), o.Namespace) },
		NotifyLater: later.NotifyAll, AccessChanged: accessChanged,
		OperatorUID: func(ctx context.Context) string {
			return string(operatorObject(ctx, mgr.GetClient(), o).UID) // without it the forwarders refuse
		},
		Dial: o.DialForwarder, Log: mgr.GetLogger().WithName("forwarders"),
	})
	return reader, now, reader.RegisterMetrics(registry(o))
}

// hostnames lists the BoundEndpoints.
func hostnames(ctx context.Context, cached client.Client, namespace string) []string {
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
