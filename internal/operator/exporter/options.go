// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"net"
	"regexp"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/options"
)

// Options configure an exporter. Flags are named as in `fairlead-operator exporter --help`.
type Options struct {
	installation.Installation
	options.API
	options.Session
	options.Process
	Deployment string // Deployment is the exporter's own; its deletion unbinds the endpoints.
	ObjectOptions
	ClusterDomain string // ClusterDomain is empty for that of /etc/resolv.conf.
	Services      bool   // Services exports Services as ServiceExports ask for.
	ClusterID     string // ClusterID is the cluster's where no ClusterProperty says it; it may be empty.

	// Metrics replaces the process's metrics registry in tests, DialUpstream the dialer of
	// addresses of endpoints.
	Metrics      prometheus.Registerer
	DialUpstream func(ctx context.Context, network, address string) (net.Conn, error)
}

// ObjectOptions say which objects are exported, and what they may ask for.
type ObjectOptions struct {
	AllowNamespaces []string // AllowNamespaces are the only ones whose objects are exported; empty: all.
	CrossNamespace  bool     // CrossNamespace admits upstreams in other namespaces than the object's.
	URLPatterns     []string // URLPatterns are of kubernetes-bound URLs that objects of all namespaces may have.
	InlinePolicies  bool     // InlinePolicies refuses traffic policies in ConfigMaps, and reads none.
	SealDir         string   // SealDir has tls.crt and tls.key for sealed endpoints; empty: there are none.
	SealCallers     string   // SealCallers is a PEM file with the authorities of their callers; empty: all are served.
}

// Check checks the namespaces and patterns.
func (o *ObjectOptions) Check(c *options.Checker) {
	for _, namespace := range o.AllowNamespaces {
		c.Name("--allow-namespaces", namespace, validation.IsDNS1123Label)
	}
	for _, pattern := range o.URLPatterns {
		if !urlPattern.MatchString(pattern) {
			c.Reject("--url-pattern", pattern, "give a pattern of URLs, such as http://*.shared or tcp://db.*:5432")
		}
	}
}

// Validate checks every option and returns all errors as one *account.Error.
func (o *Options) Validate() error {
	_, err := o.parse()
	return err
}

// parse returns the rules for objects.
func (o *Options) parse() (rules, error) {
	var c options.Checker
	o.API.Check(&c)
	o.Session.CheckAddress(&c)
	o.Installation.Check(&c)
	c.Name("--deployment", o.Deployment, validation.IsDNS1123Subdomain)
	o.ObjectOptions.Check(&c)
	if o.ClusterID != "" && !account.ValidClusterID(o.ClusterID) {
		c.Reject("--cluster-id", o.ClusterID, "give a DNS label: at most 63 characters of a-z, 0-9 and '-'")
	}
	o.Process.Check(&c)
	o.Session.CheckDrain(&c)
	domain, err := options.ClusterDomain(o.ClusterDomain, options.ResolvConf)
	c.AddError(err)
	return newRules(o, domain), c.Err()
}

// urlPattern matches patterns of kubernetes-bound URLs in their normal form, in which "*" stands
// for any run of characters.
var urlPattern = regexp.MustCompile(`^(http|tcp)://[-a-z0-9*]+\.[-a-z0-9*]+(:([1-9][0-9]{0,4}|\*))?$|^\*$`)
