// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/accountclient"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/serviceexport"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/upstream"
)

// withdrawTimeout bounds the deletion of records when the exporters are removed for good.
const withdrawTimeout = 20 * time.Second

// newServiceExports returns the controller of ServiceExports.
func (e *exporter) newServiceExports(
	rules upstream.Rules, dial agent.DialFunc, api *apiclient.Client, bounded *accountclient.Client,
) *serviceexport.Reconciler {
	exports := serviceexport.New(serviceexport.Options{
		Client: e.manager.GetClient(), Live: e.live, Informers: e.manager.GetCache(), Account: bounded,
		Watch: func(
			ctx context.Context, f account.EndpointFilter, v account.ResourceVersion,
		) (apiclient.EndpointWatch, error) {
			return api.WatchEndpoints(ctx, f, v)
		},
		Upstreams: rules, Dial: dial, Ports: exportedPorts{e},
		Replica: e.lead, ClusterID: e.ClusterID, Namespaces: e.AllowNamespaces, Recorder: e.deployment.recorder,
		Deployment: e.deployment, Orphans: e.orphans.Soon,
		Log: e.manager.GetLogger().WithName("serviceexports"),
	})
	e.lead.onElected = append(e.lead.onElected, exports.Lead)
	return exports
}

// setUpExports adds the controller of ServiceExports, and its metrics.
func (e *exporter) setUpExports(registry prometheus.Registerer) error {
	if e.exports == nil {
		return nil
	}
	gauge := func(name, help string, value func() int) error {
		return registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return float64(value()) }))
	}
	return errors.Join(
		e.exports.SetupWithManager(e.manager),
		gauge("fairlead_exporter_service_exports", "ServiceExports that there are.",
			func() int { all, _, _ := e.exports.Counts(); return all }),
		gauge("fairlead_exporter_service_exports_failed",
			"ServiceExports that the account does not have as they should be; of the replica that leads.",
			func() int { _, failed, _ := e.exports.Counts(); return failed }),
		gauge("fairlead_exporter_service_exports_readable",
			"1 while the cluster has ServiceExports, and lets them be read.",
			func() int { _, _, read := e.exports.Counts(); return map[bool]int{true: 1}[read] }),
	)
}

// withdrawRecords deletes the records of this cluster if this replica led and the exporters are
// removed for good.
func (e *exporter) withdrawRecords() {
	if e.exports == nil || !e.deployment.isUninstalled(context.Background()) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), withdrawTimeout)
	defer cancel()
	if err := e.exports.Withdraw(ctx); err != nil {
		e.Logger.Warn(
			"the account keeps exports of this cluster; they go when its exporters' keys are deleted or were "+
				"not used for a week", "cause", err)
	}
}

// exportedPorts are the agent's endpoints of ServiceExports.
type exportedPorts struct{ *exporter }

// Serve implements serviceexport.Ports.
func (p exportedPorts) Serve(export types.NamespacedName, ports map[int32]agent.Endpoint) {
	endpoints := make([]agent.Endpoint, 0, len(ports))
	for port, e := range ports {
		e.Key = portKey(export, port)
		endpoints = append(endpoints, e)
	}
	changed, removed := p.set.put(serviceExport(export), endpoints...)
	p.states.ask(changed...)
	p.states.forget(removed...)
	if len(changed) > 0 {
		p.traffic.add(serviceExport(export))
	}
}

// Keep implements serviceexport.Ports.
func (p exportedPorts) Keep(export types.NamespacedName) { p.set.keep(serviceExport(export)) }

// Remove implements serviceexport.Ports.
func (p exportedPorts) Remove(export types.NamespacedName) {
	p.states.forget(p.set.remove(serviceExport(export))...)
	p.traffic.forget(serviceExport(export))
}

// Serves implements serviceexport.Ports.
func (p exportedPorts) Serves(export types.NamespacedName) bool {
	return p.set.has(serviceExport(export))
}

// State implements serviceexport.Ports.
func (p exportedPorts) State(export types.NamespacedName, port int32) serviceexport.PortState {
	s := p.states.get(portKey(export, port))
	return serviceexport.PortState{Bound: s.Bound, Reason: s.Reason, Message: s.Message, Asked: s.asked}
}

// Unreachable implements serviceexport.Ports.
func (p exportedPorts) Unreachable() string {
	_, why := p.states.session()
	return why
}
