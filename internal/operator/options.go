// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/endpointsync"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/namespaces"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/registration"
	"github.com/fairlead-dev/fairlead/internal/operator/optioncheck"
	"github.com/fairlead-dev/fairlead/internal/selector"
)

// ManagerOptions configure the manager. Flags are named as in `fairlead-operator manager --help`.
type ManagerOptions struct {
	APIURL     string // of the account's API: https://HOST[:PORT]
	APIKeyFile string // read at each request, so that a rotated key needs no restart
	// ServiceAccountTokenFile holds a ServiceAccount token, which is presented instead of an API
	// key; read at each request.
	ServiceAccountTokenFile string
	CAFile                  string // PEM; empty: the system's roots
	VersionHeader           string

	Namespace        string
	Release          string
	Description      string
	ClusterName      string // display name of the cluster
	BindingEnabled   bool
	EndpointSelector string
	Clusterset       bool // carry what clusters export by ServiceExports
	// ClustersetDomain is the DNS domain of imported Services, for messages; empty: clusterset.local.
	ClustersetDomain string
	RemovalDelay     time.Duration
	AcceptAccount    string // the id of the account or store that may replace the recorded one
	PortRange        string
	ClusterDomain    string // empty: as /etc/resolv.conf says
	// NetworkPolicies writes the forwarders' NetworkPolicies; without it, earlier ones are deleted.
	NetworkPolicies bool
	// DefaultAccess is who may call endpoints that no EndpointAccess selects; empty: EndpointAccess
	// objects are not read, and no NetworkPolicies are written or deleted.
	DefaultAccess endpointaccess.Default
	// Projection is how pods reach the forwarders, in namespaces whose label names no other way.
	Projection v1alpha1.Projection

	AllowNamespaces   []string // empty: all
	DenyNamespaces    []string // names and prefix-*
	NamespaceSelector string   // of namespaces that consent; empty: all
	TakeoverDelay     time.Duration

	AnchorClusterRole string // with AllowNamespaces: the name of a Role in each of them
	AnchorRole        string
	// ForwarderClusterRole is the name of the forwarders' ClusterRole and ClusterRoleBinding;
	// empty: none. They are deleted with the namespace.
	ForwarderClusterRole string
	// ExporterClusterRoles are names of further ClusterRoles, with ClusterRoleBindings of the same
	// names if there are any, that are deleted with the namespace.
	ExporterClusterRoles []string
	// name of the manager's ClusterRole and ClusterRoleBinding; with AllowNamespaces, of Role and
	// RoleBinding in each of them
	ClusterRole       string
	ForwarderName     string // app.kubernetes.io/name of the forwarders' pods
	ForwarderInstance string // app.kubernetes.io/instance of them
	// name of the Service that selects them, for projection by EndpointSlices; "" = no slices are
	// read or written
	ForwarderService string

	MetricsAddr string // empty: none
	HealthAddr  string // empty: none
	LeaderElect bool

	// Kubernetes configures the cluster's client.
	Kubernetes *rest.Config
	Logger     *slog.Logger

	// Account replaces the account's API in tests, together with Registrar.
	Account   endpointsync.Source
	Registrar registration.Registrar
	// Forwarders replaces the reader of the forwarders' status in tests; ForwarderTransport is how that
	// reader connects to them.
	Forwarders         Forwarders
	ForwarderTransport http.RoundTripper
	// NamespaceRetry is the delay before a listed namespace that refused is read again; 0: 30 s.
	NamespaceRetry time.Duration
	// ServeRetry is the delay before ServiceImports that the API server does not serve are listed
	// again; 0: 5 s.
	ServeRetry time.Duration
	// Metrics replaces the process's metrics registry in tests.
	Metrics prometheus.Registerer
}

// settings are parsed options.
type settings struct {
	selector   *selector.Selector
	ports      endpointsync.PortRange
	domain     string
	namespaces namespaces.Policy
}

// Validate checks every option and returns all errors as one *account.Error.
func (o *ManagerOptions) Validate() error {
	_, err := o.parse()
	return err
}

func (o *ManagerOptions) parse() (settings, error) {
	var s settings
	var c optioncheck.Checker
	var err error
	if o.Account == nil {
		c.API(o.APIURL, o.APIKeyFile, o.ServiceAccountTokenFile, o.CAFile, o.VersionHeader)
	}
	c.Release(o.Namespace, o.Release)
	o.checkNames(&c)
	o.checkClusterset(&c)
	if len(o.Description) > account.MaxDescription {
		c.Reject("--description", o.Description[:32]+"…",
			fmt.Sprintf("a description has at most %d bytes; shorten it", account.MaxDescription))
	}
	if len(o.ClusterName) > account.MaxShortText {
		c.Reject("--cluster-name", o.ClusterName[:32]+"…",
			fmt.Sprintf("a cluster's name has at most %d bytes; shorten it", account.MaxShortText))
	}
	if o.RemovalDelay < 0 || o.RemovalDelay > 24*time.Hour {
		c.Reject("--removal-delay", o.RemovalDelay.String(), "give a duration from 0s to 24h")
	}
	if !acceptAccountPattern.MatchString(o.AcceptAccount) {
		c.Reject("--accept-account", o.AcceptAccount, "give the id that the condition AccountChanged names, or nothing")
	}
	if o.TakeoverDelay < 0 || o.TakeoverDelay > 24*time.Hour {
		c.Reject("--takeover-delay", o.TakeoverDelay.String(), "give a duration from 0s to 24h")
	}
	s.namespaces, err = namespaces.Parse(o.Namespace, o.AllowNamespaces, o.DenyNamespaces, o.NamespaceSelector)
	c.AddError(err)
	c.Addresses(o.MetricsAddr, o.HealthAddr)
	s.ports, err = endpointsync.ParsePortRange("--port-range", o.PortRange)
	c.AddError(err)
	s.domain, err = optioncheck.ClusterDomain(o.ClusterDomain, optioncheck.ResolvConf)
	c.AddError(err)
	if s.selector, err = selector.Compile(o.EndpointSelector); err != nil {
		c.Reject("--endpoint-selector", o.EndpointSelector, err.Error())
	}
	return s, c.Err()
}

// checkNames checks the names of what the chart made, and the projection.
func (o *ManagerOptions) checkNames(c *optioncheck.Checker) {
	c.Name("--anchor-cluster-role", o.AnchorClusterRole, content.IsPathSegmentName)
	c.Name("--anchor-role", o.AnchorRole, content.IsPathSegmentName)
	if o.ForwarderClusterRole != "" {
		c.Name("--forwarder-cluster-role", o.ForwarderClusterRole, content.IsPathSegmentName)
	}
	for _, name := range o.ExporterClusterRoles {
		c.Name("--exporter-cluster-roles", name, content.IsPathSegmentName)
	}
	if o.ClusterRole != "" {
		c.Name("--cluster-role", o.ClusterRole, content.IsPathSegmentName)
	}
	c.Label("--forwarder-name", o.ForwarderName)
	c.Label("--forwarder-instance", o.ForwarderInstance)
	if o.ForwarderService != "" {
		c.Name("--forwarder-service", o.ForwarderService, validation.IsDNS1123Label)
	} else if o.Projection == v1alpha1.ProjectionEndpointSlice {
		c.Reject("--forwarder-service", "", "name the Service that selects the forwarders, or give --projection="+
			string(v1alpha1.ProjectionExternalName))
	}
	if o.DefaultAccess != "" && !o.DefaultAccess.Valid() {
		c.Reject("--default-access", string(o.DefaultAccess),
			fmt.Sprintf("give %s or %s", endpointaccess.Allow, endpointaccess.Deny))
	}
	if !o.Projection.Valid() {
		c.Reject("--projection", string(o.Projection), fmt.Sprintf("give %s or %s",
			v1alpha1.ProjectionExternalName, v1alpha1.ProjectionEndpointSlice))
	}
}

// acceptAccountPattern matches ids of accounts and stores, and the empty string.
var acceptAccountPattern = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9_-]{0,127})?$`)
