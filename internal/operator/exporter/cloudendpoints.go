// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"

	"k8s.io/utils/clock"

	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/accountclient"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/cloudendpoint"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/policy"
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
