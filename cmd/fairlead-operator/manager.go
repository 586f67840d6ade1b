// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/namespaces"
)

func newManager(getenv func(string) string, errOut io.Writer) *cobra.Command {
	var o operator.ManagerOptions
	cmd := &cobra.Command{
		Use:   "manager",
		Short: "Watch the account's endpoints and keep their Services",
		Long: "Watch the account's endpoints and keep their Services.\n\n" +
			"FAIRLEAD_DESCRIPTION, FAIRLEAD_CLUSTER_NAME and FAIRLEAD_ENDPOINT_SELECTOR set the flags of these " +
			"names where they are not given.",
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Description = orEnv(cmd.Flags(), "description", o.Description, getenv("FAIRLEAD_DESCRIPTION"))
			o.ClusterName = orEnv(cmd.Flags(), "cluster-name", o.ClusterName, getenv("FAIRLEAD_CLUSTER_NAME"))
			o.EndpointSelector = orEnv(cmd.Flags(), "endpoint-selector", o.EndpointSelector,
				getenv("FAIRLEAD_ENDPOINT_SELECTOR"))
			if err := o.Validate(); err != nil {
				return err
			}
			if err := useControllers(&o.Process, errOut, getenv); err != nil {
				return err
			}
			return operator.RunManager(cmd.Context(), o)
		},
	}
	managerFlags(cmd.Flags(), &o)
	serviceFlags(cmd.Flags(), &o.ProjectionOptions)
	accessFlags(cmd.Flags(), &o)
	return cmd
}

func serviceFlags(f *pflag.FlagSet, o *operator.ProjectionOptions) {
	f.StringSliceVar((*[]string)(&o.EndpointLabels), "endpoint-labels", nil,
		"`KEYS` of labels that endpoints may ask for on their Services, such as team,example.com/*; default none")
	f.StringArrayVar(&o.ServiceLabels, "service-label", nil,
		"`KEY=VALUE` of a label that Services get beside those of the operator; may be repeated")
	f.StringArrayVar(&o.ServiceAnnotations, "service-annotation", nil,
		"`KEY=VALUE` of an annotation that the Services which pods name get; may be repeated")
}

func managerFlags(f *pflag.FlagSet, o *operator.ManagerOptions) {
	apiFlags(f, &o.API)
	credentialFlags(f, &o.Credentials, "api-key-file", "`FILE` with the API key; read again for every request",
		"the API")
	releaseFlags(f, &o.Installation, "")
	f.StringVar(&o.Description, "description", "", "`TEXT` that describes this installation in the account")
	f.StringVar(&o.ClusterName, "cluster-name", "", "`TEXT`: name of this cluster for people, shown in the account")
	f.BoolVar(&o.BindingEnabled, "binding-enabled", true,
		"project endpoints; false registers the installation and removes what was projected")
	f.StringVar(&o.EndpointSelector, "endpoint-selector", "",
		"CEL `EXPRESSION` over ep, such as ep.hostname.endsWith('.prod'); empty admits all")
	f.DurationVar(&o.RemovalDelay, "removal-delay", 30*time.Second,
		"how long the Services of an endpoint stay after its agent has disconnected")
	f.StringVar(&o.AcceptAccount, "accept-account", "",
		"`ID` of a new account, or of a new store of the same account: its lists may remove what was projected from "+
			"the old one")
	f.StringVar(&o.PortRange, "port-range", "10000-32767", "`FIRST-LAST` of the ports that forwarders listen on")
	f.StringVar((*string)(&o.Projection), "projection", string(v1alpha1.ProjectionExternalName),
		"`MODE` in which pods reach the forwarders: externalName, or endpointSlice for a ClusterIP in the target "+
			"namespace; the namespace's label "+v1alpha1.LabelProjection+" goes before it")
	f.BoolVar(&o.Clusterset, "clusterset", false,
		"import the Services that clusters of the account export; false removes what was imported")
	f.StringVar(&o.ClustersetDomain, "clusterset-domain", "clusterset.local",
		"DNS `DOMAIN` of imported Services, for messages")
	f.StringVar(&o.ClusterDomain, "cluster-domain", "",
		"DNS `DOMAIN` of the cluster; default that of /etc/resolv.conf")
	f.StringVar(&o.Roles.ClusterRole, "anchor-cluster-role", "fairlead-operator-anchor",
		"`NAME` of the ClusterRole that owns target Services; with --allow-namespaces, of the Role in each of them")
	f.StringVar(&o.Roles.Role, "anchor-role", "fairlead-operator-anchor",
		"`NAME` of the Role that owns everything else")
	f.StringVar(&o.Roles.ForwarderRights, "forwarder-cluster-role", "",
		"`NAME` of the forwarders' ClusterRole and ClusterRoleBinding, if they have any; they are deleted with the "+
			"namespace")
	f.StringSliceVar(&o.Roles.ExporterRights, "exporter-cluster-roles", nil,
		"`NAMES` of the ClusterRoles of exporters and their users, comma-separated, and of ClusterRoleBindings; they "+
			"are deleted with the namespace")
	f.StringVar(&o.Roles.Rights, "cluster-role", "",
		"`NAME` of the manager's ClusterRole and ClusterRoleBinding, or with --allow-namespaces of Role and "+
			"RoleBinding in each of them; they are deleted with the namespace")
	f.StringSliceVar(&o.AllowNamespaces, "allow-namespaces", nil,
		"`NAMES` of the only namespaces that get Services, comma-separated; nothing is read in others; default all")
	f.StringSliceVar(&o.DenyNamespaces, "deny-namespaces", []string{namespaces.DenyDefault},
		"`NAMES` and prefixes with * of namespaces that get no Services, comma-separated")
	f.StringVar(&o.NamespaceSelector, "namespace-selector", "",
		"label `SELECTOR`: only namespaces that match get Services; default all")
	f.DurationVar(&o.TakeoverDelay, "takeover-delay", time.Minute,
		"how long the name of a deleted foreign Service stays free before the operator takes it")
	f.StringVar(&o.ForwarderName, "forwarder-name", "fairlead-forwarder",
		"app.kubernetes.io/name `LABEL` of the forwarders' pods")
	f.StringVar(&o.ForwarderInstance, "forwarder-instance", "",
		"app.kubernetes.io/instance `LABEL` of the forwarders' pods")
	f.StringVar(&o.ForwarderService, "forwarder-service", "",
		"`NAME` of the Service whose EndpointSlices have the forwarders' addresses, for projection by EndpointSlices; "+
			"empty: no EndpointSlices are read or written, as the charts before gave no right to them")
	f.StringVar(&o.AuthoritiesConfigMap, "authorities-configmap", "",
		"`NAME` of the ConfigMap, which exists, to keep the authorities in that the server announces; default: none")
	addressFlags(f, &o.Process, "/healthz and /readyz")
	f.BoolVar(&o.LeaderElect, "leader-elect", false,
		"work only while holding the namespace's Lease; needed with more than one replica")
}

// accessFlags adds the flags about who may call, and who may answer.
func accessFlags(f *pflag.FlagSet, o *operator.ManagerOptions) {
	f.StringVar((*string)(&o.DefaultAccess), "default-access", "",
		"`WHO` may call endpoints that no EndpointAccess selects: allow for every pod, deny for none; default: "+
			"EndpointAccess objects are not read")
	f.BoolVar(&o.NetworkPolicies, "network-policies", false,
		"with --default-access: write NetworkPolicies for the forwarders; false deletes those that were written")
	o.Seal.AddFlags(f)
}

// orEnv returns the flag's value if the flag was given, else that of the environment.
func orEnv(f *pflag.FlagSet, name, value, env string) string {
	if f.Changed(name) {
		return value
	}
	return env
}
