// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/endpointtrust"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/endpointsync"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/namespaces"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/registration"
	"github.com/fairlead-dev/fairlead/internal/operator/options"
	"github.com/fairlead-dev/fairlead/internal/selector"
)

// ManagerOptions configure the manager. Flags are named as in `fairlead-operator manager --help`.
type ManagerOptions struct {
	installation.Installation
	options.API
	options.Process
	options.Access
	options.Seal
	// KubernetesOperatorSpec is written to the installation's KubernetesOperator and registered.
	v1alpha1.KubernetesOperatorSpec
	ClusterName string // ClusterName is the cluster's display name in the account.
	ProjectionOptions
	ImportOptions
	namespaces.Options
	Roles installation.Roles
	installation.ForwarderPods
	// AuthoritiesConfigMap is the name of the ConfigMap that keeps what the service announces of its
	// authorities; empty: it is not kept.
	AuthoritiesConfigMap string
	LeaderElect          bool
	Substitutes
}

// ProjectionOptions say how the account's endpoints become Services.
type ProjectionOptions struct {
	// Projection is how pods reach the forwarders, in namespaces whose label names no other way.
	Projection    v1alpha1.Projection
	PortRange     string // PortRange has the ports that forwarders listen on.
	ClusterDomain string // ClusterDomain is empty for that of /etc/resolv.conf.
	RemovalDelay  time.Duration
	AcceptAccount string // AcceptAccount is the id of the account or store that may replace the recorded one.
	TakeoverDelay time.Duration
	// ServiceLabels and ServiceAnnotations, KEY=VALUE each, are added to Services.
	ServiceLabels, ServiceAnnotations []string
	EndpointLabels                    installation.LabelKeys // EndpointLabels may be asked for by endpoints.
}

// ImportOptions say whether Services of other clusters are imported.
type ImportOptions struct {
	Clusterset bool // Clusterset imports what clusters export by ServiceExports.
	// ClustersetDomain is imported Services' DNS domain, for messages; empty: clusterset.local.
	ClustersetDomain string
}

// Substitutes are parts and times in place of the manager's own, which the zero values stand for.
// Tests set them.
type Substitutes struct {
	Account            endpointsync.Source // Account replaces the account's API, together with Registrar.
	Registrar          registration.Registrar
	Forwarders         Forwarders            // Forwarders replaces the reader of the forwarders' status.
	ForwarderTransport http.RoundTripper     // ForwarderTransport is how that reader connects to them.
	NamespaceRetry     time.Duration         // NamespaceRetry is for a listed namespace that refused; 0: 30 s.
	ServeRetry         time.Duration         // ServeRetry is for kinds that the API server does not serve; 0: 5 s.
	Metrics            prometheus.Registerer // Metrics replaces the process's metrics registry.
}

// settings are the options with what was parsed of them.
type settings struct {
	ManagerOptions
	selector   *selector.Selector
	ports      endpointsync.PortRange
	domain     string
	namespaces namespaces.Policy
	metadata   installation.ServiceMetadata
	seal       endpointtrust.Default
}

// Validate checks every option and returns all errors as one *account.Error.
func (o *ManagerOptions) Validate() error {
	_, err := o.parse()
	return err
}

func (o *ManagerOptions) parse() (settings, error) {
	s := settings{ManagerOptions: *o}
	var c options.Checker
	var err error
	if o.Account == nil {
		o.API.Check(&c)
	}
	o.Installation.Check(&c)
	o.Roles.Check(&c)
	o.ForwarderPods.Check(&c)
	if o.ForwarderService == "" && o.Projection == v1alpha1.ProjectionEndpointSlice {
		c.Reject("--forwarder-service", "", "name the Service that selects the forwarders, or give --projection="+
			string(v1alpha1.ProjectionExternalName))
	}
	if o.AuthoritiesConfigMap != "" {
		c.Name("--authorities-configmap", o.AuthoritiesConfigMap, validation.IsDNS1123Subdomain)
		if o.AuthoritiesDir == "" {
			c.Reject("--authorities-dir", "", "name the directory where the ConfigMap is mounted")
		}
	}
	o.Access.Check(&c)
	s.seal = o.Seal.Parse(&c)
	if !o.Projection.Valid() {
		c.Reject("--projection", string(o.Projection), fmt.Sprintf("give %s or %s",
			v1alpha1.ProjectionExternalName, v1alpha1.ProjectionEndpointSlice))
	}
	o.checkClusterset(&c)
	o.checkRegistration(&c)
	if o.RemovalDelay < 0 || o.RemovalDelay > 24*time.Hour {
		c.Reject("--removal-delay", o.RemovalDelay.String(), "give a duration from 0s to 24h")
	}
	if !options.IDPattern.MatchString(o.AcceptAccount) {
		c.Reject("--accept-account", o.AcceptAccount, "give the id that the condition AccountChanged names, or nothing")
	}
	if o.TakeoverDelay < 0 || o.TakeoverDelay > 24*time.Hour {
		c.Reject("--takeover-delay", o.TakeoverDelay.String(), "give a duration from 0s to 24h")
	}
	s.namespaces = o.Options.Parse(o.Namespace, &c)
	o.EndpointLabels.Check(&c)
	s.metadata = installation.ParseServiceMetadata(o.ServiceLabels, o.ServiceAnnotations, &c)
	o.Process.Check(&c)
	s.ports, err = endpointsync.ParsePortRange("--port-range", o.PortRange)
	c.AddError(err)
	s.domain, err = options.ClusterDomain(o.ClusterDomain, options.ResolvConf)
	c.AddError(err)
	if s.selector, err = selector.Compile(o.EndpointSelector); err != nil {
		c.Reject("--endpoint-selector", o.EndpointSelector, err.Error())
	}
	return s, c.Err()
}

// checkRegistration checks what is registered in the account.
func (o *ManagerOptions) checkRegistration(c *options.Checker) {
	if len(o.Description) > account.MaxDescription {
		c.Reject("--description", o.Description[:32]+"…",
			fmt.Sprintf("a description has at most %d bytes; shorten it", account.MaxDescription))
	}
	if len(o.ClusterName) > account.MaxShortText {
		c.Reject("--cluster-name", o.ClusterName[:32]+"…",
			fmt.Sprintf("a cluster's name has at most %d bytes; shorten it", account.MaxShortText))
	}
}
