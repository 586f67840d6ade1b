// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fairlead-dev/fairlead/internal/operator/controller/endpointsync"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderaddresses"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/registration"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/serviceimport"
	"github.com/fairlead-dev/fairlead/internal/operator/options"
)

// defaultClustersetDomain is the DNS domain of imported Services (KEP-1645).
const defaultClustersetDomain = "clusterset.local"

// serviceImports is the part of the manager that imports Services of other clusters.
type serviceImports struct {
	reconciler *serviceimport.Reconciler // nil: nothing is imported
	runnables  []manager.Runnable
}

// newServiceImports returns what imports Services or, without --clusterset, what deletes the
// imported ones.
func newServiceImports(
	mgr ctrl.Manager, direct directClients, o settings, set *endpointsync.Set,
	addresses *forwarderaddresses.Tracker, changes *notify.Source, recorder events.EventRecorder,
) serviceImports {
	own, log := direct.anchors.Installation, mgr.GetLogger().WithName("imports")
	switch {
	case len(o.AllowNamespaces) > 0: // such an installation has imported nothing, and has no right to look
		return serviceImports{}
	case !o.Clusterset:
		return serviceImports{runnables: []manager.Runnable{&serviceimport.Leftovers{Installation: own,
			Client: direct.client, Log: log}}}
	}
	r := serviceimport.New(serviceimport.Options{
		Client: mgr.GetClient(), Live: direct.client, Anchors: direct.anchors, Exports: set, Addresses: addresses,
		Changes: changes, Namespaces: o.namespaces, Recorder: recorder, Log: log,
		ServeRetry: o.ServeRetry, Domain: cmp.Or(o.ClustersetDomain, defaultClustersetDomain),
	})
	return serviceImports{r, []manager.Runnable{r.Runnable()}}
}

// setup adds the controller and connects its condition.
func (i serviceImports) setup(mgr ctrl.Manager, register *registration.Registration) error {
	if i.reconciler == nil {
		return nil
	}
	register.ServiceImports = i.reconciler
	return i.reconciler.SetupWithManager(mgr)
}

// checkClusterset checks what importing needs.
func (o *ManagerOptions) checkClusterset(c *options.Checker) {
	if !o.Clusterset {
		return
	}
	if len(o.AllowNamespaces) > 0 {
		c.Reject("--clusterset", "true", "give either --clusterset or --allow-namespaces: importing needs the right "+
			"to read the Namespaces and the ServiceImports of the whole cluster")
	}
	if o.ForwarderService == "" {
		c.Reject("--forwarder-service", "", "name the Service that selects the forwarders, or leave out --clusterset: "+
			"imported Services have EndpointSlices")
	}
	if o.ClustersetDomain != "" && len(validation.IsDNS1123Subdomain(o.ClustersetDomain)) > 0 {
		c.Reject("--clusterset-domain", o.ClustersetDomain, "give a DNS domain, such as "+defaultClustersetDomain)
	}
}
