// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/sealed/authority"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/forward"
)

// Options configure a forwarder. All are required unless stated otherwise.
type Options struct {
	// EdgeAddress is the host:port of the service's edge.
	EdgeAddress string
	// TLS verifies the edge; see internal/trust. The tunnel sets server name and protocol.
	TLS *tls.Config
	// Authorities learns those that the edge announces. Optional: without it, none.
	Authorities tunnel.Learner
	// Dial connects to EdgeAddress. Optional: the default is a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// AuthtokenFile holds the authtoken; it is read for every session, so a change needs no
	// restart. While it is empty or unreadable, the last valid token stays in use.
	AuthtokenFile string
	// ServiceAccountTokenFile holds a ServiceAccount token, which is presented instead of an
	// authtoken, and again on live sessions when it changes. One of the two files is required.
	ServiceAccountTokenFile string
	// InstanceID is the pod's name; it distinguishes the forwarders of an operator. Optional:
	// without it, /status refuses all requests.
	InstanceID string

	// Source reads what to serve; in a cluster it is a *clustersource.Source.
	Source Source
	// PodIPs are the pod's addresses, one for each family, as EndpointSlices list them. Optional:
	// without any, a stopping forwarder waits as if it could not read EndpointSlices.
	PodIPs []netip.Addr
	// Pods are the pods of the cluster. Optional: without them, streams name no pod, and no caller
	// is known to Access.
	Pods Pods

	RuleOptions
	ListenOptions

	// DrainTimeout is how long a stopping forwarder waits for its connections after pods have
	// ceased to connect. Deregistration takes up to DeregistrationTimeout before that; if it takes
	// longer, the time is subtracted from DrainTimeout. When the namespace is being deleted, the
	// forwarder waits at most 2 s in all.
	DrainTimeout time.Duration
	// Logger is optional.
	Logger *slog.Logger
}

// RuleOptions are what the owners of namespaces decide.
type RuleOptions struct {
	// Access are the rules about who may call what. Optional: without them all calls are allowed.
	Access AccessRules
	// NetworkPolicies leaves the decision to NetworkPolicies where Objects.NetworkPolicies says that
	// they are written for the rules as they are, if there are no Pods.
	NetworkPolicies bool
	// Trust are the rules about whose agents may answer. Optional: without them nothing is sealed.
	Trust TrustRules
	// Caller is the certificate by which the forwarder proves itself to agents, and CallerToken the
	// token. Optional: without both it proves nothing.
	Caller      *authority.Source
	CallerToken sealed.TokenSource
}

// ListenOptions say where a forwarder listens.
type ListenOptions struct {
	// Host is the address of this machine at which the ports of BoundEndpoints listen. Empty: all.
	Host string
	// HealthAddr and MetricsAddr are listen addresses: of /healthz, /readyz and /status, and of
	// /metrics. Empty disables that listener.
	HealthAddr, MetricsAddr string
}

// DeregistrationTimeout is how long, besides DrainTimeout, a stopping forwarder continues to accept
// while EndpointSlices list it: enough for about 3,000 hostnames, whose slices are written twice in
// a rollout. The pod's termination grace period must be longer than DeregistrationTimeout and
// DrainTimeout together.
const DeregistrationTimeout = 5 * time.Minute

// Objects are the cluster's objects at one moment.
type Objects struct {
	// BoundEndpoints are all of the namespace. They must not be modified.
	BoundEndpoints []*v1alpha1.BoundEndpoint
	// OperatorID is the installation's id in the account, or "" while it is not registered.
	OperatorID string
	// OperatorUID is the UID of the installation's KubernetesOperator, or "" while there is none.
	// The token of /status is derived from it.
	OperatorUID string
	// OthersConnected reports whether all forwarders that are ready have a session with the edge, as
	// the manager observed last.
	OthersConnected bool
	// NetworkPolicies names the EndpointAccess objects that the forwarders' NetworkPolicies are
	// written for; nil: they are not written.
	NetworkPolicies *v1alpha1.WrittenNetworkPolicies
}

// Source provides the objects that a forwarder serves, and reports whether its pod is still called.
type Source interface {
	// Watch calls update with all objects once the BoundEndpoints are listed, and again after
	// changes, one call at a time. It returns when ctx is done; an error means that watching is not
	// possible at all.
	Watch(ctx context.Context, update func(Objects)) error
	// InEndpointSlices reports whether an EndpointSlice of the namespace lists one of the addresses
	// as ready, or one of a target Service may.
	InEndpointSlices(ctx context.Context, podIPs []netip.Addr) (bool, error)
	// NamespaceDeleted reports whether the namespace is being deleted or gone. An error means that
	// this is unknown; repeated Unauthorized errors mean that the forwarder's ServiceAccount is
	// gone.
	NamespaceDeleted(ctx context.Context) (bool, error)
}

// timing holds the durations that the design fixes. Tests shorten them.
type timing struct {
	forward.Timing

	readyTimeout   time.Duration // how long the forwarder waits for the edge before it can be ready without it
	readyPoll      time.Duration // pause between two later decisions about readiness
	listenRetry    time.Duration // first pause after a failed listen; doubles up to listenRetryMax
	listenRetryMax time.Duration
	// pause after the edge has refused the session permanently: the token may be replaced
	edgeRetry             time.Duration
	slicePoll             time.Duration // how often a stopping forwarder reads its EndpointSlices
	sliceReadGrace        time.Duration // how long it continues when it cannot read them
	kubeProxyDelay        time.Duration // how long kube-proxy needs to follow the EndpointSlices
	deregistrationTimeout time.Duration
	// how often a forwarder that is not stopping checks whether the namespace is being deleted;
	// Kubernetes marks it about 5 s before it deletes pods
	namespacePoll time.Duration
	// how long a stopping forwarder's credential must be refused before its ServiceAccount counts
	// as deleted
	unauthorizedGrace time.Duration
	namespaceTimeout  time.Duration // how long reading the namespace may take
	accessPause       time.Duration // least pause between two passes over the live connections
	accessRetry       time.Duration // how often connections with uncertain callers are decided again
	// how long connections may continue when the namespace is being deleted: Kubernetes delays the
	// deletion by minutes if pods are not gone within about 5 s
	uninstallDrain time.Duration
}

func defaultTiming() timing {
	return timing{
		Timing: forward.DefaultTiming(), readyTimeout: 20 * time.Second, readyPoll: time.Second,
		listenRetry: 100 * time.Millisecond, listenRetryMax: 10 * time.Second, edgeRetry: 10 * time.Second,
		slicePoll: 2 * time.Second, sliceReadGrace: 30 * time.Second, kubeProxyDelay: 10 * time.Second,
		deregistrationTimeout: DeregistrationTimeout,
		namespacePoll:         4 * time.Second, unauthorizedGrace: 10 * time.Second, namespaceTimeout: time.Second,
		accessPause: 50 * time.Millisecond, accessRetry: 500 * time.Millisecond, uninstallDrain: 2 * time.Second,
	}
}

func (o *Options) complete() error {
	if _, _, err := net.SplitHostPort(o.EdgeAddress); err != nil {
		return fmt.Errorf("edge address %q: give it as HOST:PORT, an IPv6 address in brackets: %w", o.EdgeAddress, err)
	}
	switch {
	case o.TLS == nil:
		return errors.New("TLS configuration is missing")
	case (o.AuthtokenFile == "") == (o.ServiceAccountTokenFile == ""):
		return errors.New("name either the file that holds the authtoken, or that of a ServiceAccount token")
	case o.DrainTimeout < 0:
		return fmt.Errorf("drain timeout %s: give a duration of 0 or more", o.DrainTimeout)
	case o.Source == nil:
		return errors.New("the source of what to serve is missing")
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return nil
}
