// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/serviceexport"
)

func newExporter(getenv func(string) string, errOut io.Writer) *cobra.Command {
	var o exporter.Options
	cmd := &cobra.Command{
		Use:   "exporter",
		Short: "Keep an endpoint of the account for each AgentEndpoint of the cluster, and export its Services",
		Long: "Keep an endpoint of the account for each AgentEndpoint of the cluster, and carry its connections to " +
			"the Service that it names.\n\n" +
			"The environment variable POD_NAME identifies its pod. When it is told to stop, it lets open " +
			"connections end; the endpoints stay in the account unless its Deployment is gone.",
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.PodName = getenv("POD_NAME")
			if err := o.Validate(); err != nil {
				return err
			}
			if err := useControllers(&o.Process, errOut, getenv); err != nil {
				return err
			}
			return exporter.Run(cmd.Context(), o)
		},
	}
	exporterFlags(cmd.Flags(), &o)
	return cmd
}

func exporterFlags(f *pflag.FlagSet, o *exporter.Options) {
	apiFlags(f, &o.API)
	credentialFlags(f, &o.Credentials, "api-key-file",
		"`FILE` with an API key of the scope exporter; read again for every session and request", "API and edge")
	sessionFlags(f, &o.Session)
	releaseFlags(f, &o.Installation, "")
	f.StringVar(&o.Deployment, "deployment", "",
		"`NAME` of the exporters' Deployment: when that is deleted, the endpoints go; also the name of their Lease")
	f.StringSliceVar(&o.AllowNamespaces, "allow-namespaces", nil,
		"`NAMES` of the only namespaces whose objects are exported, comma-separated; default all")
	f.BoolVar(&o.InlinePolicies, "inline-policies", false,
		"refuse traffic policies in ConfigMaps, which then need not be readable")
	f.BoolVar(&o.CrossNamespace, "cross-namespace", false,
		"let an object name a Service of another namespace than its own")
	f.StringVar(&o.SealDir, "seal-dir", "",
		"`FOLDER` with tls.crt and tls.key for sealed AgentEndpoints and ServiceExports; read again when they change")
	f.StringVar(&o.SealCallers, "seal-callers", "",
		"`FILE` with the authorities of sealed endpoints' callers: PEM; others are refused; read again when it changes")
	f.StringArrayVar(&o.URLPatterns, "url-pattern", nil,
		"`PATTERN` of URLs that objects of every namespace may have, such as http://*.shared; may be repeated. "+
			"Without one, the second label of a URL is the object's namespace")
	f.BoolVar(&o.Services, "services", false,
		"export Services to the other clusters of the account, as ServiceExports of the Multi-Cluster Services API "+
			"ask for")
	f.StringVar(&o.ClusterID, "cluster-id", "",
		"`ID` of the cluster among those of the account, a DNS label, for a cluster without the ClusterProperty "+
			serviceexport.PropertyName)
	f.StringVar(&o.ClusterDomain, "cluster-domain", "",
		"DNS `DOMAIN` of the cluster; default that of /etc/resolv.conf")
	addressFlags(f, &o.Process, "/healthz and /readyz")
}
