// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/agent/sealededge"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/cloudendpoint"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/orphans"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/policy"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/serviceexport"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/upstream"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/process"
	"github.com/fairlead-dev/fairlead/internal/operator/serviceaccounttoken"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// +kubebuilder:rbac:groups=bindings.fairlead.dev,resources=agentendpoints;cloudendpoints,verbs=get;list;watch
// +kubebuilder:rbac:groups=bindings.fairlead.dev,resources=agentendpoints/status;cloudendpoints/status,verbs=update
// +kubebuilder:rbac:groups="",resources=services;configmaps,verbs=get;list;watch
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kube-system,verbs=get
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=fairlead,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=fairlead,resources=leases,resourceNames=fairlead-operator-exporter,verbs=get;update
// +kubebuilder:rbac:groups=apps,namespace=fairlead,resources=deployments,resourceNames=fairlead-operator-exporter,verbs=get

// clusterUIDRetry is the pause before the cluster's UID is read again.
const clusterUIDRetry = 2 * time.Second

// exporter is the state of one Run.
type exporter struct {
	Options
	manager    ctrl.Manager
	live       client.Reader // without a cache
	set        *endpointSet
	states     *bindStates
	traffic    *trafficMetrics
	lead       *leadership
	deployment *deployment
	seal       *seal
	exports    *serviceexport.Reconciler // nil without Options.Services
	agent      atomic.Pointer[agent.Agent]
	orphans    *orphans.Collector

	synced   chan struct{} // closed when the caches are filled
	answered atomic.Bool   // every object of the first list had its answer
	stopping atomic.Bool

	credential serviceaccounttoken.Credential // the API key or the ServiceAccount token
}

// Run exports until ctx ends. It then lets open connections finish within Options.DrainTimeout.
// Invalid options, and a cluster that refuses the exporter permanently, are errors; an unreachable
// API server or service is not.
func Run(ctx context.Context, o Options) error {
	rules, err := o.parse()
	if err != nil {
		return err
	}
	edge := sealededge.New(o.Logger)
	defer edge.Close()
	e, err := newExporter(ctx, o, rules, edge)
	if err != nil {
		return err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- e.manager.Start(running) }()
	served := make(chan error, 1)
	go func() { served <- e.serve(ctx) }()
	select {
	case err := <-ended: // the manager fails
		return fmt.Errorf("running the exporter: %w", err)
	case err = <-served:
	}
	cancel()
	select {
	case <-e.synced:
		err = errors.Join(err, <-ended)
	default: // nothing runs yet, and Start may wait for an unreachable API server
	}
	if err != nil {
		return fmt.Errorf("running the exporter: %w", err)
	}
	return nil
}

// newExporter constructs and connects all parts.
func newExporter(ctx context.Context, o Options, rules rules, edge *sealededge.Edge) (*exporter, error) {
	mgr, err := process.NewManager(clientConfig(o.Kubernetes), kinds(), o.MetricsAddr, o.HealthAddr, ctrl.Options{
		Cache: cacheOptions(o.AllowNamespaces), Logger: logr.FromSlogHandler(o.Logger.Handler())})
	if err != nil {
		return nil, err
	}
	e := &exporter{Options: o, manager: mgr, live: mgr.GetAPIReader(), set: newEndpointSet(),
		traffic: newTrafficMetrics(), synced: make(chan struct{}),
		seal: &seal{edge: edge, dir: o.SealDir, callers: o.SealCallers,
			sealing: trafficpolicy.Sealing{CallersProven: o.SealCallers != ""}},
		credential: o.Credentials.Open(o.Logger)}
	e.orphans = &orphans.Collector{Cached: mgr.GetClient(), Live: e.live, Soon: notify.NewSignal(),
		Log: mgr.GetLogger().WithName("orphans")}
	e.deployment = &deployment{client: e.live, key: client.ObjectKey{Namespace: o.Namespace, Name: o.Deployment},
		recorder: mgr.GetEventRecorder("fairlead-exporter")}
	if e.lead, err = newLeadership(&o, e.deployment); err != nil {
		return nil, err
	}
	e.orphans.Replica = e.lead
	dialer := &upstream.Dialer{Cache: mgr.GetClient(), Rules: rules.upstreams, Dial: o.DialUpstream}
	agents := &agentEndpoints{client: mgr.GetClient(), live: e.live, rules: rules, set: e.set, lead: e.lead,
		changes: notify.New("", 0), recorder: e.deployment.recorder, traffic: e.traffic, dial: dialer.DialContext,
		seal:     e.seal,
		policies: policy.New(policy.Options{Metadata: mgr.GetClient(), Live: e.live, InlineOnly: o.InlinePolicies})}
	e.lead.onElected = append(e.lead.onElected, agents.enqueueAll)
	api, bounded, err := e.newAccount()
	if err != nil {
		return nil, err
	}
	if o.Services {
		if e.exports, err = e.newServiceExports(rules.upstreams, dialer.DialContext, api, bounded); err != nil {
			return nil, err
		}
	}
	e.states = newBindStates(ctx, agents, e.exports)
	agents.states = e.states
	clouds := e.newCloudEndpoints(rules, agents.policies, bounded)
	return e, errors.Join(
		upstream.IndexSlices(ctx, mgr.GetFieldIndexer()),
		agents.setUp(ctx, mgr),
		cloudendpoint.Index(ctx, mgr.GetFieldIndexer()),
		clouds.SetupWithManager(mgr),
		e.registerMetrics(cmp.Or[prometheus.Registerer](o.Metrics, metrics.Registry)),
		mgr.AddReadyzCheck("exporter", e.checkReady),
		mgr.AddHealthzCheck("process", func(*http.Request) error { return nil }),
		mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { close(e.synced); <-ctx.Done(); return nil })),
	)
}

// serve runs the agent and the leadership until ctx ends and the agent has drained.
func (e *exporter) serve(ctx context.Context) error {
	defer e.stopping.Store(true)
	stopped := context.AfterFunc(ctx, func() { e.stopping.Store(true) })
	defer stopped()
	select {
	case <-e.synced:
	case <-ctx.Done():
		return nil
	}
	uid, ok := e.clusterUID(ctx)
	if !ok {
		return nil
	}
	e.lead.cluster.Store(&uid)
	a, err := e.newAgent(uid)
	if err != nil {
		return err
	}
	e.agent.Store(a)
	if _, err := e.deployment.get(ctx); err != nil {
		e.Logger.Warn("the exporters' Deployment cannot be read: endpoints stay bound when it is deleted",
			"deployment", e.deployment.key, "cause", err)
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { e.set.apply(ctx, a.Set) })
	leading := make(chan error, 1)
	running.Go(func() { leading <- e.lead.run(ctx) })
	err = errors.Join(a.Run(ctx), <-leading)
	e.withdrawRecords()
	return err
}

// newAgent returns the agent that holds the endpoints.
func (e *exporter) newAgent(clusterUID string) (*agent.Agent, error) {
	tls, authorities, err := e.Session.Trust(&e.Credentials)
	if err != nil {
		return nil, err
	}
	dial, err := e.Dialer(tls)
	if err != nil {
		return nil, err
	}
	return agent.New(agent.Options{
		ServerOptions: agent.ServerOptions{Server: "https://" + e.EdgeAddress, Address: e.EdgeAddress, TLS: tls,
			Authorities: authorities,
			DialServer:  dial, Token: e.token, RenewToken: e.ServiceAccountTokenFile != ""},
		ShutdownOptions: agent.ShutdownOptions{DrainTimeout: e.DrainTimeout,
			LeaveBound: func() bool { return !e.deployment.isUninstalled(context.Background()) }},
		InstanceID: e.PodName, ClusterUID: clusterUID, KeepRunning: true,
		Observer: &observer{states: e.states, traffic: e.traffic, log: e.Logger}, Logger: e.Logger,
	}), nil
}

// clusterUID reads the UID of namespace kube-system, which identifies the cluster. ok is false when
// ctx has ended.
func (e *exporter) clusterUID(ctx context.Context) (uid string, ok bool) {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	for {
		err := e.live.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, ns)
		if err == nil {
			return string(ns.UID), true
		}
		if ctx.Err() == nil {
			e.Logger.Warn("the cluster's UID cannot be read; trying again", "cause", err)
		}
		if !timer.Sleep(ctx, clusterUIDRetry) {
			return "", false
		}
	}
}

// checkReady reports why the exporter is not ready: it is connected, its cache is filled, and since
// it started each object that there was had an answer, so that a roll-out ends an old replica only
// when the new one serves everything.
func (e *exporter) checkReady(req *http.Request) error {
	select {
	case <-e.synced:
	default:
		return errors.New("the caches are not filled yet: is the API server reachable?")
	}
	if e.stopping.Load() {
		return errors.New("it is stopping")
	}
	if up, _ := e.states.session(); !up {
		return errors.New("no session with the service")
	}
	if e.answered.Load() {
		return nil
	}
	if err := e.checkAnswered(req.Context()); err != nil {
		return err
	}
	e.answered.Store(true)
	return nil
}

// checkAnswered returns an error unless every object's endpoints had their answers.
func (e *exporter) checkAnswered(ctx context.Context) error {
	var list v1alpha1.AgentEndpointList
	if err := e.manager.GetClient().List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing AgentEndpoints: %w", err)
	}
	all := make([]object, 0, len(list.Items))
	for i := range list.Items {
		all = append(all, agentEndpoint(client.ObjectKeyFromObject(&list.Items[i])))
	}
	if e.exports != nil {
		exports, err := e.exports.Names(ctx)
		if err != nil {
			return err
		}
		for _, export := range exports {
			all = append(all, serviceExport(export))
		}
	}
	for _, o := range all {
		isUnanswered := func(key string) bool { return !e.states.get(key).answered() }
		if !e.set.wasSeen(o) || slices.ContainsFunc(e.set.keys(o), isUnanswered) {
			return fmt.Errorf("%s %s is not bound yet", o.kind, o.NamespacedName)
		}
	}
	return nil
}
