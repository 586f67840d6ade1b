// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"log/slog"
	"net"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/optioncheck"
)

// Options configure an exporter. Flags are named as in `fairlead-operator exporter --help`.
type Options struct {
	APIURL      string // of the account's API: https://HOST[:PORT]
	EdgeAddress string // host:port
	APIKeyFile  string // of a key with the scope exporter; read again for every session and request
	// ServiceAccountTokenFile holds a ServiceAccount token, which is presented instead of an API
	// key, and again on live sessions when it changes.
	ServiceAccountTokenFile string

	CAFile        string // PEM; empty: the system's roots
	VersionHeader string

	Namespace  string
	Release    string
	Deployment string // of the exporter itself; its deletion unbinds the endpoints
	PodName    string

	AllowNamespaces []string // empty: all
	CrossNamespace  bool     // upstreams may be Services of other namespaces than the object's
	URLPatterns     []string // of kubernetes-bound URLs that objects of all namespaces may have
	ClusterDomain   string   // empty: as /etc/resolv.conf says
	InlinePolicies  bool     // traffic policies in ConfigMaps are refused, and no ConfigMap is read

	Services  bool   // export Services as ServiceExports ask for
	ClusterID string // of the cluster where no ClusterProperty says it; may be empty

	MetricsAddr  string // empty: none
	HealthAddr   string // empty: none
	DrainTimeout time.Duration

	// Kubernetes configures the cluster's client.
	Kubernetes *rest.Config
	Logger     *slog.Logger

	// Metrics replaces the process's metrics registry in tests, DialUpstream the dialer of
	// addresses of endpoints.
	Metrics      prometheus.Registerer
	DialUpstream func(ctx context.Context, network, address string) (net.Conn, error)
}

// Validate checks every option and returns all errors as one *account.Error.
func (o *Options) Validate() error {
	_, err := o.parse()
	return err
}

// parse returns the rules for objects.
func (o *Options) parse() (rules, error) {
	var c optioncheck.Checker
	c.API(o.APIURL, o.APIKeyFile, o.ServiceAccountTokenFile, o.CAFile, o.VersionHeader)
	c.EdgeAddress("--edge-address", o.EdgeAddress)
	c.Release(o.Namespace, o.Release)
	c.Name("--deployment", o.Deployment, validation.IsDNS1123Subdomain)
	for _, namespace := range o.AllowNamespaces {
		c.Name("--allow-namespaces", namespace, validation.IsDNS1123Label)
	}
	for _, pattern := range o.URLPatterns {
		if !urlPattern.MatchString(pattern) {
			c.Reject("--url-pattern", pattern, "give a pattern of URLs, such as http://*.shared or tcp://db.*:5432")
		}
	}
	if o.ClusterID != "" && !account.ValidClusterID(o.ClusterID) {
		c.Reject("--cluster-id", o.ClusterID, "give a DNS label: at most 63 characters of a-z, 0-9 and '-'")
	}
	c.Addresses(o.MetricsAddr, o.HealthAddr)
	if o.DrainTimeout < 0 {
		c.Reject("--drain-timeout", o.DrainTimeout.String(), "give a duration of 0s or more")
	}
	domain, err := optioncheck.ClusterDomain(o.ClusterDomain, optioncheck.ResolvConf)
	c.AddError(err)
	return newRules(o, domain), c.Err()
}

// urlPattern matches patterns of kubernetes-bound URLs in their normal form, in which "*" stands
// for any run of characters.
var urlPattern = regexp.MustCompile(`^(http|tcp)://[-a-z0-9*]+\.[-a-z0-9*]+(:([1-9][0-9]{0,4}|\*))?$|^\*$`)
