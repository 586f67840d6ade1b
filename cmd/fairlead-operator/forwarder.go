// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/goruntime/memory"
	"github.com/fairlead-dev/fairlead/internal/operator"
)

func newForwarder(getenv func(string) string, errOut io.Writer) *cobra.Command {
	var o operator.ForwarderOptions
	cmd := &cobra.Command{
		Use:   "forwarder",
		Short: "Listen on the target ports and relay each connection to the service's edge",
		Long: "Listen on the target ports and relay each connection to the service's edge.\n\n" +
			"The environment variables POD_NAME and POD_IPS identify its pod. When it is told to stop, it " +
			"waits until " +
			"no EndpointSlice holds one of these IPs.",
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.PodName, o.PodIPs = getenv("POD_NAME"), getenv("POD_IPS")
			if err := o.Validate(); err != nil {
				return err
			}
			if err := useCluster(&o.Process, errOut); err != nil {
				return err
			}
			defer memory.Ballast()()
			return operator.RunForwarder(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	sessionFlags(f, &o.Session)
	credentialFlags(f, &o.Credentials, "authtoken-file", "`FILE` with the authtoken; read again for every session",
		"the edge")
	releaseFlags(f, &o.Installation, "")
	addressFlags(f, &o.Process, "/healthz, /readyz and /status")
	f.BoolVar(&o.PodIdentity, "pod-identity", false,
		"know the calling pod, for EndpointAccess objects and the edge; needs the right to list and watch all pods "+
			"and namespaces of the cluster")
	f.StringVar((*string)(&o.DefaultAccess), "default-access", "",
		"allow or deny: what holds for endpoints that no EndpointAccess selects; default: these objects are not read")
	f.BoolVar(&o.NetworkPolicies, "network-policies", false,
		"without --pod-identity: leave it to NetworkPolicies who may call, while the manager has written them for the "+
			"EndpointAccess objects as they are")
	o.Seal.AddFlags(f)
	o.Seal.AddCallerFlag(f)
	f.StringSliceVar(&o.AllowNamespaces, "allow-namespaces", nil,
		"`NAMES` of the only namespaces whose EndpointAccess and EndpointTrust objects are read, comma-separated, as "+
			"the manager's; calls of endpoints in others are denied; default all")
	f.StringSliceVar(&o.PodAnnotations, "pod-annotations", nil,
		"with --pod-identity: `NAMES` of annotations that policies may read; example.com/* names all with this "+
			"prefix")
	return cmd
}
