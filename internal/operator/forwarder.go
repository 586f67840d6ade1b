// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/internal/connectproxy"
	"github.com/fairlead-dev/fairlead/internal/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/forwarder"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

// +kubebuilder:rbac:groups=bindings.fairlead.dev,namespace=fairlead,resources=boundendpoints;kubernetesoperators,verbs=get;list;watch
// +kubebuilder:rbac:groups=discovery.k8s.io,namespace=fairlead,resources=endpointslices,verbs=list
// +kubebuilder:rbac:groups="",namespace=fairlead,resources=namespaces,resourceNames=fairlead,verbs=get

// ForwarderOptions say what a forwarder is to do. Flags are named as in `fairlead-operator forwarder --help`.
type ForwarderOptions struct {
	EdgeAddress   string // host:port
	AuthtokenFile string
	CAFile        string // PEM; empty: the system's roots
	Namespace     string
	Release       string
	PodName       string
	PodIP         string
	MetricsAddr   string // empty: none
	HealthAddr    string // empty: none
	DrainTimeout  time.Duration

	// Kubernetes reaches the cluster.
	Kubernetes *rest.Config
	Logger     *slog.Logger
}

// Validate checks every option and returns all that is wrong as one *account.Error.
func (o *ForwarderOptions) Validate() error {
	var c checks
	host, port, err := net.SplitHostPort(o.EdgeAddress)
	if n, portErr := strconv.Atoi(port); err != nil || host == "" || portErr != nil || n < 1 || n > 65535 {
		c.wrong("--edge-address", o.EdgeAddress, "give the address of the edge as HOST:PORT")
	}
	c.file("--authtoken-file", o.AuthtokenFile)
	c.ca("--ca-file", o.CAFile)
	c.name("--namespace", o.Namespace, validation.IsDNS1123Label)
	c.name("--release", o.Release, validation.IsDNS1123Subdomain)
	if o.PodIP != "" && net.ParseIP(o.PodIP) == nil {
		c.wrong("POD_IP", o.PodIP, "give the pod's IP address, from status.podIP")
	}
	c.listen("--metrics-addr", o.MetricsAddr)
	c.listen("--health-addr", o.HealthAddr)
	if o.DrainTimeout < 0 {
		c.wrong("--drain-timeout", o.DrainTimeout.String(), "give a duration of 0s or more")
	}
	return c.err()
}

// RunForwarder runs a forwarder until the context ends and its connections are drained.
func RunForwarder(ctx context.Context, o ForwarderOptions) error {
	if err := o.Validate(); err != nil {
		return err
	}
	tls, err := trust.Options{CAFile: o.CAFile}.ClientConfig()
	if err != nil {
		return fmt.Errorf("reading the authorities to trust for the edge: %w", err)
	}
	dial, err := connectproxy.Dialer(os.Getenv, nil)
	if err != nil {
		return fmt.Errorf("reading HTTPS_PROXY: %w", err)
	}
	own := installation.Installation{Namespace: o.Namespace, Release: o.Release}
	return forwarder.Run(ctx, forwarder.Options{
		EdgeAddress: o.EdgeAddress, TLS: tls, Dial: dial, AuthtokenFile: o.AuthtokenFile, InstanceID: o.PodName,
		Kubernetes: o.Kubernetes, Namespace: o.Namespace, Release: o.Release, Owns: own.Owns, PodIP: o.PodIP,
		HealthAddr: o.HealthAddr, MetricsAddr: o.MetricsAddr, DrainTimeout: o.DrainTimeout, Logger: o.Logger,
	})
}
