// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/endpointtrust"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/accessrules"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/clustersource"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/podidentity"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/trustrules"
	"github.com/fairlead-dev/fairlead/internal/operator/options"
	"github.com/fairlead-dev/fairlead/internal/sealed/authority"
)

// +kubebuilder:rbac:groups=bindings.fairlead.dev,namespace=fairlead,resources=boundendpoints;kubernetesoperators,verbs=get;list;watch
// +kubebuilder:rbac:groups=bindings.fairlead.dev,resources=endpointaccesses;endpointtrusts,verbs=list;watch
// +kubebuilder:rbac:groups=discovery.k8s.io,namespace=fairlead,resources=endpointslices,verbs=list
// +kubebuilder:rbac:groups="",namespace=fairlead,resources=namespaces,resourceNames=fairlead,verbs=get
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=list;watch

// policyGrace is how long the last EndpointAccess or EndpointTrust of an endpoint holds after it has
// been deleted.
const policyGrace = 10 * time.Second

// ForwarderOptions configure a forwarder. Flags are named as in `fairlead-operator forwarder
// --help`.
type ForwarderOptions struct {
	installation.Installation
	options.Session
	options.Credentials
	options.Process
	options.Access
	options.Seal
	PodIPs      string // PodIPs has one address for each family, comma-separated.
	PodIdentity bool   // PodIdentity names the calling pod to the edge if it is known for certain.
	// PodAnnotations are the annotations that are sent with the pod's name, for policies: names,
	// and prefixes that end in "*".
	PodAnnotations []string
	// AllowNamespaces are the only namespaces whose EndpointAccess and EndpointTrust objects are
	// read; empty: all.
	AllowNamespaces []string
}

// Validate checks every option and returns all errors as one *account.Error.
func (o *ForwarderOptions) Validate() error {
	_, _, err := o.parse()
	return err
}

// parse returns the pod's addresses, and what holds without an EndpointTrust.
func (o *ForwarderOptions) parse() ([]netip.Addr, endpointtrust.Default, error) {
	var c options.Checker
	o.Session.CheckAddress(&c)
	o.Credentials.Check(&c, "--authtoken-file")
	o.Installation.Check(&c)
	ips, err := parseIPs(o.PodIPs)
	if err != nil {
		c.Reject("POD_IPS", o.PodIPs, "give the pod's IP addresses, from status.podIPs")
	}
	o.Process.Check(&c)
	o.Session.CheckDrain(&c)
	for _, name := range podidentity.Annotations(o.PodAnnotations).Invalid() {
		c.Reject("--pod-annotations", name, "give names of annotations, or beginnings such as example.com/*")
	}
	if len(o.PodAnnotations) > 0 && !o.PodIdentity {
		c.Reject("--pod-annotations", strings.Join(o.PodAnnotations, ","),
			"give --pod-identity, too: without it no pod is known")
	}
	o.Access.Check(&c)
	seal := o.Seal.Parse(&c)
	return ips, seal, c.Err()
}

// RunForwarder runs a forwarder until the context ends and its connections are drained.
func RunForwarder(ctx context.Context, o ForwarderOptions) error {
	ips, seal, err := o.parse()
	if err != nil {
		return err
	}
	tls, authorities, err := o.Session.Trust(&o.Credentials)
	if err != nil {
		return err
	}
	dial, err := o.Dialer(tls)
	if err != nil {
		return err
	}
	source, err := clustersource.New(o.Kubernetes, o.Installation)
	if err != nil {
		return fmt.Errorf("forwarder: %w", err)
	}
	pods, rules, stop, err := callers(ctx, o, seal)
	if err != nil {
		return err
	}
	defer stop()
	return forwarder.Run(ctx, forwarder.Options{
		EdgeAddress: o.EdgeAddress, TLS: tls, Authorities: authorities, Dial: dial, AuthtokenFile: o.SecretFile,
		ServiceAccountTokenFile: o.ServiceAccountTokenFile, InstanceID: o.PodName, Source: source, PodIPs: ips,
		ListenOptions: forwarder.ListenOptions{HealthAddr: o.HealthAddr, MetricsAddr: o.MetricsAddr},
		DrainTimeout:  o.DrainTimeout, Pods: pods, RuleOptions: rules, Logger: o.Logger,
	})
}

// callers watches who may call which endpoints, whose agents may answer for them and, if enabled, the
// cluster's pods, until stop is called: all continue while the forwarder drains.
func callers(
	ctx context.Context, o ForwarderOptions, seal endpointtrust.Default,
) (pods forwarder.Pods, rules forwarder.RuleOptions, stop func(), err error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	stop = func() { cancel(); running.Wait() }
	defer func() {
		if err != nil {
			stop()
		}
	}()
	rules.NetworkPolicies = o.NetworkPolicies
	if o.PodIdentity {
		known, err := podidentity.New(o.Kubernetes, o.PodAnnotations, o.Logger)
		if err != nil {
			return nil, rules, nil, err
		}
		running.Go(func() { known.Run(ctx) })
		pods = known
	}
	if o.DefaultAccess != "" {
		access, err := accessrules.New(accessrules.Options{
			Kubernetes: o.Kubernetes, Default: o.DefaultAccess, Namespaces: o.AllowNamespaces,
			NamespaceLabels: o.PodIdentity, Grace: policyGrace, Logger: o.Logger,
		})
		if err != nil {
			return nil, rules, nil, err
		}
		running.Go(func() { access.Run(ctx) })
		rules.Access = access
	}
	if o.Sealed != "" {
		trust, err := trustrules.New(trustrules.Options{Kubernetes: o.Kubernetes, Default: seal,
			Namespaces: o.AllowNamespaces, Grace: policyGrace, Logger: o.Logger})
		if err != nil {
			return nil, rules, nil, err
		}
		running.Go(func() { trust.Run(ctx) })
		rules.Trust, rules.Caller = trust, o.Seal.Caller()
		if o.SealCallerTokenFile != "" {
			rules.CallerToken = authority.FollowToken(o.SealCallerTokenFile, o.SealAccount)
		}
	}
	return pods, rules, stop, nil
}

// parseIPs parses a comma-separated list of addresses; empty is none.
func parseIPs(text string) ([]netip.Addr, error) {
	if text == "" {
		return nil, nil
	}
	var ips []netip.Addr
	for part := range strings.SplitSeq(text, ",") {
		ip, err := netip.ParseAddr(part)
		if err != nil {
			return nil, err
		}
		ips = append(ips, ip)
	}
	return ips, nil
}
