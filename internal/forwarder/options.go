// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Options are what a forwarder needs to run. All are required but those that say otherwise.
type Options struct {
	// EdgeAddress is the host:port of the service's edge.
	EdgeAddress string
	// TLS verifies the edge; see internal/trust. The tunnel sets server name and protocol.
	TLS *tls.Config
	// Dial reaches EdgeAddress. Optional: without it, a net.Dialer does.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// AuthtokenFile holds the authtoken; it is read for every session, so a change needs no restart.
	// While it is empty or unreadable, the last good token stays in use.
	AuthtokenFile string
	// InstanceID tells this forwarder from the others of its operator: the pod's name. Optional:
	// without it, /status refuses everyone.
	InstanceID string

	// Kubernetes reaches the cluster. Not needed when Source is set.
	Kubernetes *rest.Config
	// Namespace and Release say which objects are ours: the BoundEndpoints in Namespace and the
	// KubernetesOperator named Release.
	Namespace, Release string
	// Owns says whether a BoundEndpoint belongs to this installation; the others are ignored.
	// Optional: without it, all belong.
	Owns func(metav1.Object) bool
	// PodIPs are the addresses, one for each family, under which EndpointSlices list this forwarder.
	// Optional: without any, a stopping forwarder waits as if it could not read them.
	PodIPs []netip.Addr
	// Identify says which pod an address belongs to; nil is unknown. It may wait for one that has just
	// started, until ctx is done. Optional: without it, streams name no pod.
	Identify func(ctx context.Context, client netip.Addr) *tunnel.PodIdentity
	// Source replaces the cluster. Optional.
	Source Source

	// HealthAddr and MetricsAddr are listen addresses: /healthz, /readyz and /status on the first,
	// /metrics on the second. The empty string leaves that listener out.
	HealthAddr, MetricsAddr string
	// DrainTimeout is how long a stopping forwarder waits for its connections once pods no longer
	// come. Leaving takes up to DeregistrationTimeout before that; where it takes longer, it takes that from
	// DrainTimeout. When the namespace is being deleted, it waits for at most 2 s in all.
	DrainTimeout time.Duration
	// Logger is for the people who run the cluster. Optional.
	Logger *slog.Logger
}

// DeregistrationTimeout is what a stopping forwarder has, besides DrainTimeout, to go on accepting because
// EndpointSlices still name it: enough for about 3,000 hostnames, whose slices are written twice in
// a rollout. The pod's termination grace period must be longer than DeregistrationTimeout and DrainTimeout
// together.
const DeregistrationTimeout = 5 * time.Minute

// Objects is what the cluster says at one moment.
type Objects struct {
	// BoundEndpoints are all of the namespace. They are only read.
	BoundEndpoints []*v1alpha1.BoundEndpoint
	// OperatorID is the installation's id in the account, or "" while it is not registered.
	OperatorID string
	// OperatorUID is the UID of the installation's KubernetesOperator, or "" while there is none.
	// The token of /status is made from it.
	OperatorUID string
}

// Source is how a forwarder sees the cluster.
type Source interface {
	// Watch calls update with all objects as soon as the BoundEndpoints are listed, and again after
	// changes, one call at a time. It returns when ctx is done; an error says that watching is not
	// possible at all.
	Watch(ctx context.Context, update func(Objects)) error
	// InEndpointSlices reports whether an EndpointSlice of the namespace names one of the addresses as ready.
	InEndpointSlices(ctx context.Context, podIPs []netip.Addr) (bool, error)
	// NamespaceDeleted reports whether the namespace is being deleted, or gone: for certain. With an error,
	// nobody knows; one that says Unauthorized again and again tells that the ServiceAccount of the
	// forwarder is gone.
	NamespaceDeleted(ctx context.Context) (bool, error)
}

// timing are the durations that the design fixes. Tests shorten them.
type timing struct {
	sessionWait time.Duration // how long a connection waits for a session with the edge
	// how long it waits for the edge's answer to its stream, the wait for a session included; with
	// head it is 5 s
	openTimeout           time.Duration
	headTimeout           time.Duration // how long a request's head may take before it is answered with a page
	linger                time.Duration // how long input is read and dropped after that page
	readyTimeout          time.Duration // how long the edge may stay away before the forwarder is ready without it
	listenRetry           time.Duration // first pause after a failed listen; doubles up to listenMax
	listenRetryMax        time.Duration
	edgeRetry             time.Duration // pause after the edge has refused the session for good: somebody may repair the token
	slicePoll             time.Duration // how often a stopping forwarder reads its EndpointSlices
	sliceReadGrace        time.Duration // how long it goes on when it cannot read them
	kubeProxyDelay        time.Duration // how long kube-proxy needs after the EndpointSlices are right
	deregistrationTimeout time.Duration
	// how often a forwarder that is not stopping asks whether the namespace is being deleted;
	// Kubernetes marks it 5 s before it deletes pods
	namespacePoll time.Duration
	// how long a stopping forwarder's credential has to be refused before its ServiceAccount is taken
	// for gone
	unauthorizedGrace time.Duration
	namespaceTimeout  time.Duration // how long the answer may take whether the namespace is being deleted
	// how long connections may go on when it is: Kubernetes waits for minutes when pods are not gone
	// within about 5 s
	uninstallDrain time.Duration
}

func defaultTiming() timing {
	return timing{
		sessionWait: 3 * time.Second, openTimeout: 4 * time.Second, headTimeout: time.Second, linger: time.Second, readyTimeout: 20 * time.Second,
		listenRetry: 100 * time.Millisecond, listenRetryMax: 10 * time.Second, edgeRetry: 10 * time.Second,
		slicePoll: 2 * time.Second, sliceReadGrace: 30 * time.Second, kubeProxyDelay: 10 * time.Second, deregistrationTimeout: DeregistrationTimeout,
		namespacePoll: 4 * time.Second, unauthorizedGrace: 10 * time.Second, namespaceTimeout: time.Second, uninstallDrain: 2 * time.Second,
	}
}

func (o *Options) complete() error {
	if _, _, err := net.SplitHostPort(o.EdgeAddress); err != nil {
		return fmt.Errorf("edge address %q: give it as HOST:PORT, an IPv6 address in brackets: %w", o.EdgeAddress, err)
	}
	switch {
	case o.TLS == nil:
		return errors.New("TLS configuration is missing")
	case o.AuthtokenFile == "":
		return errors.New("authtoken file is missing: name the file that holds the authtoken")
	case o.DrainTimeout < 0:
		return fmt.Errorf("drain timeout %s: give a duration of 0 or more", o.DrainTimeout)
	case o.Source == nil && (o.Kubernetes == nil || o.Namespace == "" || o.Release == ""):
		return errors.New("namespace, release and the configuration of a Kubernetes client belong together: give all three")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Source != nil {
		return nil
	}
	source, err := newClusterSource(o.Kubernetes, o.Namespace, o.Release, o.Owns)
	if err != nil {
		return err
	}
	o.Source = source
	return nil
}
