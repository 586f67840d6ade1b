// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderaddresses"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/registration"
)

// newForwarderAddresses returns the tracker of the addresses that EndpointSlices list, and the
// source that it notifies of hostnames; imports is notified of ServiceImports.
func newForwarderAddresses(
	mgr ctrl.Manager, o ManagerOptions, own installation.Installation, register *registration.Registration,
	imports *notify.Source,
) (*forwarderaddresses.Tracker, *notify.Source) {
	changes := notify.New(own.Namespace, 0)
	return forwarderaddresses.New(forwarderaddresses.Options{
		Cluster: &forwarderaddresses.EndpointSlices{Config: mgr.GetConfig(), Service: o.ForwarderService,
			Live: mgr.GetAPIReader(), Installation: own, Namespaces: o.AllowNamespaces},
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
