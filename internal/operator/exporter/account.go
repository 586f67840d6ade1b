// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"time"

	"k8s.io/utils/clock"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/accountclient"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/cloudendpoint"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/policy"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/serviceexport"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/upstream"
)

// newAccount returns the client of the account's API, and the same with bounds for the calls of all
// controllers together.
func (e *exporter) newAccount() (*apiclient.Client, *accountclient.Client, error) {
	api, _, err := e.Client("fairlead-exporter", e.credential)
	if err != nil {
		return nil, nil, err
	}
	e.lead.onElected = append(e.lead.onElected, func(ctx context.Context) { <-ctx.Done(); api.CloseIdleConnections() })
	return api, accountclient.New(api), nil
}

// newServiceExports adds the controller of ServiceExports.
func (e *exporter) newServiceExports(
	rules upstream.Rules, dial agent.DialFunc, api *apiclient.Client, bounded *accountclient.Client,
) (*serviceexport.Reconciler, error) {
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
	return exports, exports.SetupWithManager(e.manager)
}

// withdrawTimeout bounds the deletion of records when the exporters are removed for good.
const withdrawTimeout = 20 * time.Second

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

// newCloudEndpoints returns the controller of CloudEndpoints. It and the collector of orphans work
// while this replica leads.
func (e *exporter) newCloudEndpoints(
	rules rules, policies *policy.Reader, bounded *accountclient.Client,
) *cloudendpoint.Reconciler {
	clouds := cloudendpoint.New(cloudendpoint.Options{
		Client: e.manager.GetClient(), Live: e.live, Account: bounded, Policies: policies, URLs: rules,
		Replica: e.lead, Recorder: e.deployment.recorder, Clock: clock.RealClock{},
	})
	e.orphans.Account, e.orphans.Clouds = bounded, clouds
	if e.exports != nil {
		e.orphans.Exports = e.exports
	}
	e.lead.onElected = append(e.lead.onElected, clouds.EnqueueAll, e.orphans.Run)
	return clouds
}
