// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fairlead-dev/fairlead/internal/operator/controller/boundendpoint"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/endpointsync"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/keyhandover"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/projectionlatency"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/registration"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/accessrules"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/process"
	"github.com/fairlead-dev/fairlead/internal/version"
)

const (
	orphanDelay = 30 * time.Second
	portRest    = time.Minute
	// statusDebounce is how long the status of a hostname waits after its agent or its forwarders'
	// status has changed.
	statusDebounce = 10 * time.Second
)

// RunManager runs the manager until the context ends. Invalid options, and a cluster that refuses
// the manager permanently, are errors; an unreachable cluster or account is not.
func RunManager(ctx context.Context, options ManagerOptions) error {
	o, err := options.parse()
	if err != nil {
		return err
	}
	logger := logr.FromSlogHandler(o.Logger.Handler())
	direct, err := newDirectClients(o)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	second := newSecondReleaseDetector(direct.anchors.Installation, logger.WithName("lease"))
	ready := &readiness{log: logger}
	mgr, err := newManager(o, ready, direct.anchors, second, stop)
	if err != nil {
		return err
	}
	if err := addRunnables(ctx, mgr, direct, o, ready, second); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		if !ready.filled.Load() {
			return nil // nothing runs yet, and mgr.Start waits for an unreachable API server
		}
		err = <-ended
	}
	if errors.Is(context.Cause(ctx), errLeaseTaken) {
		err = errLeaseTaken
	}
	if err != nil {
		return fmt.Errorf("running the manager: %w", err)
	}
	return nil
}

// directClients read from the API server without the manager's cache: the anchors, and listed
// namespaces.
type directClients struct {
	client  client.WithWatch
	anchors *installation.Anchors
	access  *accessrules.Watcher // nil: no namespaces are listed
	trust   *trustObjects        // nil: EndpointTrust objects are not read
}

func newDirectClients(o settings) (directClients, error) {
	direct, err := client.NewWithWatch(clientConfig(o.Kubernetes), kinds().ClientOptions())
	if err != nil {
		return directClients{}, fmt.Errorf("preparing the client for what is not cached: %w", err)
	}
	access, err := newListedAccess(o)
	if err != nil {
		return directClients{}, err
	}
	trust, err := newTrust(o, direct)
	if err != nil {
		return directClients{}, err
	}
	return directClients{direct, &installation.Anchors{Installation: o.Installation, Roles: o.Roles, Client: direct,
		Listed: len(o.AllowNamespaces) > 0}, access, trust}, nil
}

func newManager(
	o settings, ready *readiness, anchors *installation.Anchors, second *secondReleaseDetector,
	stop context.CancelCauseFunc,
) (ctrl.Manager, error) {
	lock, err := newLock(clientConfig(o.Kubernetes), anchors, second, stop)
	if err != nil {
		return nil, err
	}
	return process.NewManager(clientConfig(o.Kubernetes), kinds(), o.MetricsAddr, o.HealthAddr, ctrl.Options{
		Cache:                               cacheOptions(anchors.Installation, o.namespaces, ready.watchFailed),
		Logger:                              ready.log,
		LeaderElection:                      o.LeaderElect,
		LeaderElectionResourceLockInterface: lock,
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       new(maxLeaseDuration),
		RenewDeadline:                       new(renewDeadline),
		RetryPeriod:                         new(leaseRetry),
	})
}

// addRunnables constructs and connects all parts of the manager.
func addRunnables(
	ctx context.Context, mgr ctrl.Manager, direct directClients, o settings, ready *readiness,
	second *secondReleaseDetector,
) error {
	api, err := newAccountClients(o, mgr.GetLogger().WithName("keys"))
	if err != nil {
		return err
	}
	anchors, own, recorder := direct.anchors, direct.anchors.Installation, mgr.GetEventRecorder("fairlead-operator")
	targets, uninstall := newTargetInformers(mgr, direct.client, o)
	set, latency := newSet(o)
	report := endpointsync.NewReporter(ctx, recorder, mgr.GetClient(), own)
	changes, availability := notify.New(own.Namespace, 0), notify.New(own.Namespace, statusDebounce)
	importChanges, access := notify.New("", 0), newAccess(mgr, direct, o)
	forwarders, forwarderChanges, err := newForwarderStatus(mgr, o, availability, access)
	if err != nil {
		return err
	}
	feed := &endpointsync.Feed{Source: api.Source, Set: set, Log: mgr.GetLogger().WithName("feed"),
		Report: report, Hostnames: changes, Availability: availability, Imports: importChanges,
		Live: mgr.GetAPIReader(), Installation: own}
	sync := newEndpointSync(mgr, o, anchors, set, report)
	sync.Approvals, sync.Latency = &endpointsync.Approvals{Changes: forwarderChanges}, latency
	register := newRegistration(mgr, o, anchors, recorder, api)
	addresses, addressChanges := newForwarderAddresses(mgr, o, register, importChanges)
	services := boundendpoint.New(boundendpoint.Options{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Anchors: anchors, Account: set,
		Forwarders: forwarders, Trust: direct.trust, Addresses: addresses, NetworkPolicies: access.policies,
		Approvals: sync.Approvals, Latency: latency, Recorder: recorder, Clock: clock.RealClock{},
		Layout: boundendpoint.Layout{Installation: own, ClusterDomain: o.domain, ForwarderPods: o.ForwarderPods,
			Anchors: []string{o.Roles.ClusterRole, o.Roles.Role}, Metadata: o.metadata},
		Target: boundendpoint.TargetOptions{Namespaces: o.namespaces, Services: targets, Role: o.Roles.Rights,
			Uninstall: uninstall, Projection: o.Projection, WithoutSlices: o.ForwarderService == "",
			OrphanDelay: orphanDelay}, TakeoverDelay: o.TakeoverDelay,
	})
	register.Endpoints = accountEndpoints{feed, set}
	second.registration, second.elected = register, mgr.Elected()
	imports := newServiceImports(mgr, direct, o, set, addresses, importChanges, recorder)
	if o.BindingEnabled {
		register.Forwarders = forwarders
	} else {
		set.Disable()
	}
	runnables := slices.Concat([]manager.Runnable{register, second}, imports.runnables,
		optional(o.AuthoritiesConfigMap != "" && api.authorities.Learns(), &authorityKeeper{client: direct.client,
			key:         client.ObjectKey{Namespace: o.Namespace, Name: o.AuthoritiesConfigMap},
			authorities: api.authorities, log: mgr.GetLogger().WithName("authorities")}),
		optional(o.ForwarderService != "", addresses), // else there is no right to EndpointSlices
		optional(o.BindingEnabled, feed, forwarders), optional(targets != nil, targets, uninstall))
	return errors.Join(
		addReplicaRunnables(ctx, mgr, o, ready, api.keys),
		boundendpoint.Index(ctx, mgr.GetFieldIndexer(), own),
		registerMetrics(o, set, feed, latency.Register, register.RegisterMetrics, services.RegisterMetrics),
		sync.SetupWithManager(mgr, changes),
		access.setup(mgr, o, forwarders, register, set, forwarderChanges, availability),
		services.SetupWithManager(mgr, availability, forwarderChanges, addressChanges),
		imports.setup(mgr, register),
		addAll(mgr, runnables...),
	)
}

// newEndpointSync returns what writes the specs of BoundEndpoints, without its approvals.
func newEndpointSync(
	mgr ctrl.Manager, o settings, anchors *installation.Anchors, set *endpointsync.Set,
	report *endpointsync.Reporter,
) *endpointsync.Reconciler {
	return &endpointsync.Reconciler{
		Client: mgr.GetClient(), Anchors: anchors, Set: set,
		Report: report, Clock: clock.RealClock{}, Ports: endpointsync.NewPorts(o.ports, portRest, clock.RealClock{}),
		Delays: endpointsync.Delays{Removal: o.RemovalDelay, Rest: portRest},
	}
}

// newSet returns the set of the account's endpoints that the selector admits, and what measures
// their projection.
func newSet(o settings) (*endpointsync.Set, *projectionlatency.Tracker) {
	latency := projectionlatency.New(clock.RealClock{})
	return endpointsync.NewSet(endpointsync.SetOptions{Selector: o.selector, Clusterset: o.Clusterset,
		RemovalDelay: o.RemovalDelay, AcceptAccount: o.AcceptAccount, Clock: clock.RealClock{},
		Labels: o.EndpointLabels, Latency: latency}), latency
}

// registerMetrics registers the metrics of set and feed, and calls each with the process's registry.
func registerMetrics(
	o settings, set *endpointsync.Set, feed *endpointsync.Feed, each ...func(prometheus.Registerer) error,
) error {
	errs := []error{endpointsync.RegisterMetrics(registry(o), set, feed)}
	for _, register := range each {
		errs = append(errs, register(registry(o)))
	}
	return errors.Join(errs...)
}

// newRegistration returns the registration of this installation, without its connections to the
// feed.
func newRegistration(
	mgr ctrl.Manager, o settings, anchors *installation.Anchors, recorder events.EventRecorder,
	api accountClients,
) *registration.Registration {
	r := &registration.Registration{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Account: api, Anchors: anchors,
		Recorder: recorder, Clock: clock.RealClock{}, Spec: o.KubernetesOperatorSpec,
		Version: version.String(), ClusterName: o.ClusterName, Log: mgr.GetLogger().WithName("registration"),
	}
	if api.keys != nil {
		r.Keys = api.keys
	}
	return r
}

// accountEndpoints are the account's endpoints as registration reports of them.
type accountEndpoints struct {
	*endpointsync.Feed
	*endpointsync.Set
}

// addReplicaRunnables adds what every replica runs, leading or not.
func addReplicaRunnables(
	ctx context.Context, mgr ctrl.Manager, o settings, ready *readiness, keys *keyhandover.Handover,
) error {
	var err error
	if keys != nil {
		err = mgr.Add(keys)
	}
	return errors.Join(err,
		fillBeforeLeading(ctx, mgr.GetCache(), o),
		mgr.Add(ready),
		mgr.Add(&memoryReleaser{}),
		mgr.AddReadyzCheck("caches", ready.check),
		mgr.AddHealthzCheck("process", func(*http.Request) error { return nil }),
	)
}

// optional returns the runnables if they are wanted.
func optional(wanted bool, runnables ...manager.Runnable) []manager.Runnable {
	if !wanted {
		return nil
	}
	return runnables
}

func addAll(mgr ctrl.Manager, runnables ...manager.Runnable) error {
	var errs []error
	for _, r := range runnables {
		errs = append(errs, mgr.Add(r))
	}
	return errors.Join(errs...)
}

func registry(o settings) prometheus.Registerer {
	return cmp.Or[prometheus.Registerer](o.Metrics, metrics.Registry)
}
