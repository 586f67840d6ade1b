// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"fmt"

	"k8s.io/utils/clock"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/accountclient"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/cloudendpoint"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/orphans"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/policy"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/version"
)

// newAccount returns the client of the account's API, and the same with bounds for the calls of all
// controllers together.
func (e *exporter) newAccount() (*apiclient.Client, *accountclient.Client, error) {
	tls, err := trust.Options{CAFile: e.CAFile}.ClientConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("reading the authorities to trust for the account's API: %w", err)
	}
	api, err := apiclient.New(apiclient.Options{
		BaseURL: e.APIURL, TLS: tls, VersionHeader: e.VersionHeader, UserAgent: "fairlead-exporter/" + version.String(),
		APIKey: e.readCredential,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("preparing the client of the account: %w", err)
	}
	e.lead.onElected = append(e.lead.onElected, func(ctx context.Context) { <-ctx.Done(); api.CloseIdleConnections() })
	return api, accountclient.New(api), nil
}

// newCloudEndpoints returns the controller of CloudEndpoints. It and the collector of orphans work
// while this replica leads.
func (e *exporter) newCloudEndpoints(
	rules rules, policies *policy.Reader, bounded *accountclient.Client,
) *cloudendpoint.Reconciler {
	cluster := func() string { return *e.cluster.Load() }
	clouds := cloudendpoint.New(cloudendpoint.Options{
		Client: e.manager.GetClient(), Live: e.live, Account: bounded, Policies: policies, Cluster: cluster,
		CheckURL: func(namespace, binding, url string) (account.EndpointURL, string) {
			u, p := rules.endpointURL(binding, url, namespace)
			if p != nil {
				return u, p.Message
			}
			return u, ""
		},
		Leading: e.lead.Leading, Recorder: e.manager.GetEventRecorder("fairlead-exporter"), Clock: clock.RealClock{},
	})
	collector := &orphans.Collector{Account: bounded, Cached: e.manager.GetClient(), Live: e.live, Cluster: cluster,
		OnList: clouds.Observe, Log: e.manager.GetLogger().WithName("orphans")}
	e.heldDeletions = collector.Held
	if e.exports != nil {
		collector.Exports, collector.Soon = e.exports.PortURLs, e.orphansDue
	}
	e.lead.onElected = append(e.lead.onElected, clouds.EnqueueAll, collector.Run)
	return clouds
}
