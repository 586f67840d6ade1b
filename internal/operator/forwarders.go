// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/accessstatus"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/boundendpoint"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderaddresses"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderstatus"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/networkpolicy"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/registration"
)

// Forwarders is the state of the forwarders; *forwarderstatus.Reader implements it.
type Forwarders interface {
	manager.Runnable
	boundendpoint.Forwarders
	accessstatus.Forwarders
	accessstatus.TrustForwarders
	registration.Forwarders
	networkpolicy.Forwarders
}

// newForwarderStatus returns the reader of the forwarders' status, and the source that it notifies
// at once; it notifies the given one of what may be late, and access when what they report of
// EndpointAccess objects may have changed.
func newForwarderStatus(
	mgr ctrl.Manager, o settings, later *notify.Source, access *access,
) (Forwarders, *notify.Source, error) {
	now := notify.New(o.Namespace, 0)
	if o.Forwarders != nil {
		return o.Forwarders, now, nil
	}
	reader := forwarderstatus.New(forwarderstatus.Options{
		Pods: &forwarderstatus.PodWatch{Config: mgr.GetConfig(), Namespace: o.Namespace,
			Labels: o.PodLabels()},
		Objects: installedObjects{mgr.GetClient(), o}, Now: now, Later: later, Access: access,
		Transport: o.ForwarderTransport, Log: mgr.GetLogger().WithName("forwarders"),
	})
	return reader, now, reader.RegisterMetrics(registry(o))
}

// installedObjects reads the installation's objects from the cache.
type installedObjects struct {
	cached client.Client
	o      settings
}

// Hostnames implements forwarderstatus.Objects.
func (i installedObjects) Hostnames(ctx context.Context) []string {
	var hostnames []string
	for _, o := range notify.Names(ctx, i.cached, &v1alpha1.BoundEndpointList{}, client.InNamespace(i.o.Namespace)) {
		hostnames = append(hostnames, o.Name)
	}
	return hostnames
}

// OperatorUID implements forwarderstatus.Objects; without it the forwarders refuse.
func (i installedObjects) OperatorUID(ctx context.Context) string {
	return string(i.o.Operator(ctx, i.cached).UID)
}

// newForwarderAddresses returns the tracker of the addresses that EndpointSlices list, and the
// source that it notifies of hostnames; imports is notified of ServiceImports.
func newForwarderAddresses(
	mgr ctrl.Manager, o settings, register *registration.Registration, imports *notify.Source,
) (*forwarderaddresses.Tracker, *notify.Source) {
	changes := notify.New(o.Namespace, 0)
	return forwarderaddresses.New(forwarderaddresses.Options{
		Cluster: &forwarderaddresses.EndpointSlices{Config: mgr.GetConfig(), Service: o.ForwarderService,
			Live: mgr.GetAPIReader(), Installation: o.Installation, Namespaces: o.AllowNamespaces},
		Record: register, Holders: sliceHolders{changes, imports}, Log: mgr.GetLogger().WithName("addresses"),
	}), changes
}

// sliceHolders are what has EndpointSlices with the forwarders' addresses.
type sliceHolders struct{ hostnames, imports *notify.Source }

// NotifyAll implements notify.Listener for hostnames, and the "<namespace>/<name>" of ServiceImports.
func (h sliceHolders) NotifyAll(keys []string) {
	for _, key := range keys {
		if namespace, name, ok := strings.Cut(key, "/"); ok {
			h.imports.NotifyObject(types.NamespacedName{Namespace: namespace, Name: name})
		} else {
			h.hostnames.Notify(key)
		}
	}
}
