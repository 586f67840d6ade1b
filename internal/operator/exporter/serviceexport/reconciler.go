// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceexport

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/accountclient"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/upstream"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/owned"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/process"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
	"github.com/fairlead-dev/fairlead/internal/sealed"
)

const (
	// workers bounds the calls that the account's API gets at once.
	workers = 4
	// clusterTimeout bounds reading and writing an object.
	clusterTimeout = 10 * time.Second
	// liveRetry is the pause before the API server is asked again whether an object is gone.
	liveRetry = 5 * time.Second
	// lastRetry is the longest delay after a refusal, which a change elsewhere may end.
	lastRetry = 5 * time.Minute
	// answerWait is how long the first status of an object waits for the answers to its binds.
	answerWait = 2 * time.Second
	// SealRecheck is how often a sealed object is compared with the names of the certificate, which the
	// kubelet may have replaced.
	SealRecheck = 30 * time.Second
	// readyFallDelay is how long a Service must have no ready endpoint before its record says so.
	readyFallDelay = time.Second
)

// AnnotationSealed with the value "true" seals the connections of a ServiceExport.
const AnnotationSealed = "bindings.fairlead.dev/sealed"

// PortState is what came of the bind of a port.
type PortState struct {
	Bound           bool
	Reason, Message string // why it is not bound; "" while there is no answer
	Asked           time.Time
}

// Ports are the endpoints of the agent: a port of an export each. Its methods are safe for
// concurrent use.
type Ports interface {
	// Serve makes the agent bind these ports of an export, and no others.
	Serve(export types.NamespacedName, ports map[int32]agent.Endpoint)
	// Seal returns what seals the connections of a port, or why they cannot be sealed.
	Seal(u account.EndpointURL) (*sealed.Identity, *status.Problem)
	// Withhold ends the ports of an export that must not serve as they did, at once.
	Withhold(export types.NamespacedName)
	// Keep leaves the ports of an export as they are.
	Keep(export types.NamespacedName)
	// Remove ends the ports of an export that is gone.
	Remove(export types.NamespacedName)
	// Serves reports whether the export has ports.
	Serves(export types.NamespacedName) bool
	// State returns the state of a port.
	State(export types.NamespacedName, port int32) PortState
	// Unreachable returns why there has been no session with the service for a while; "" = there is
	// one, or was just now.
	Unreachable() string
}

// Deployment is that of the exporters.
type Deployment interface {
	// ReportMissingKind reports that the cluster lacks ServiceExports, with what to do.
	ReportMissingKind(ctx context.Context, missing string)
}

// Options are what New needs.
type Options struct {
	// Client reads objects from the cache and writes the status of ServiceExports.
	Client client.Client
	// Live reads them from the API server.
	Live client.Reader
	// Informers are the cache's.
	Informers Informers
	Account   accountclient.Endpoints
	Watch     WatchFunc
	Upstreams upstream.Rules
	Dial      agent.DialFunc
	Ports     Ports
	// Replica is asked for the cluster while this replica leads.
	accountclient.Replica
	// ClusterID is the cluster's id where no ClusterProperty says it; may be "".
	ClusterID string
	// Namespaces are those whose ServiceExports are read; none = all.
	Namespaces []string
	Recorder   events.EventRecorder
	// Deployment gets an event when the cluster lacks ServiceExports.
	Deployment Deployment
	// Orphans receives when endpoints of exports that are gone should be deleted soon.
	Orphans notify.Signal
	Log     logr.Logger
}

// Reconciler reconciles ServiceExports. New makes one.
type Reconciler struct {
	process.EveryReplica
	Options
	exports *exportNames
	ids     *clusterID
	records *records
	feed    *feed
	kind    kind
	backoff accountclient.Backoff
	claim   claim

	mu      sync.Mutex
	unready map[types.NamespacedName]time.Time // since when a Service has no ready endpoint
	failed  map[types.NamespacedName]bool      // exports whose record is not as it should be
}

// New returns a Reconciler.
func New(o Options) *Reconciler {
	exports := newExportNames()
	r := &Reconciler{Options: o, exports: exports, records: newRecords(exports),
		unready: map[types.NamespacedName]time.Time{}, failed: map[types.NamespacedName]bool{},
		backoff: accountclient.NewBackoff(lastRetry)}
	r.feed = &feed{options: &r.Options, records: r.records, refresh: notify.NewSignal()}
	r.ids = &clusterID{live: o.Live, flag: o.ClusterID, exports: exports, orphans: o.Orphans, log: o.Log}
	return r
}

// Notify requests a reconciliation of an export: the state of its ports has changed.
func (r *Reconciler) Notify(name types.NamespacedName) { r.exports.changes.NotifyObject(name) }

// EnqueueAll requests a reconciliation of every export.
func (r *Reconciler) EnqueueAll() { r.exports.notifyAll() }

// Reconcile binds the ports of an export and, while this replica leads, writes its record and
// status.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (result ctrl.Result, err error) {
	name := req.NamespacedName
	if !r.kind.isRead() {
		return ctrl.Result{}, nil // all are enqueued when it is
	}
	var o v1beta1.ServiceExport
	err = r.Client.Get(ctx, name, &o)
	switch {
	case apierrors.IsNotFound(err):
		return r.missing(ctx, name)
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("reading ServiceExport %s: %w", name, err)
	case o.DeletionTimestamp != nil:
		return r.remove(ctx, name)
	}
	r.exports.seen.Store(name, true)
	found, err := r.resolve(ctx, &o)
	if err != nil {
		return ctrl.Result{}, err
	}
	_, isSealed := o.Annotations[AnnotationSealed]
	switch {
	case found.unknown:
		return ctrl.Result{RequeueAfter: liveRetry}, nil // or before, with the cluster's id
	case found.keep:
		r.Ports.Keep(name)
		return ctrl.Result{RequeueAfter: liveRetry}, nil
	case isSealed && found.refused != nil:
		r.Ports.Withhold(name)
	default:
		r.Ports.Serve(name, found.ports)
	}
	if r.Leading() && !errors.Is(r.known(), errRecordsUnknown) { // all are enqueued when that changes
		result, err = r.report(ctx, &o, &found, r.apply(ctx, &o, &found))
	}
	if isSealed && result.RequeueAfter == 0 {
		result.RequeueAfter = SealRecheck
	}
	return result, err
}

// missing ends an export that the cache does not have, once the API server itself says that it is
// gone: a cache that was filled from a wrong answer ends nothing.
func (r *Reconciler) missing(ctx context.Context, name types.NamespacedName) (ctrl.Result, error) {
	if !r.exports.has(name) {
		r.Ports.Remove(name)
		return ctrl.Result{}, nil
	}
	kind := schema.GroupVersion(v1beta1.GroupVersion).WithKind(v1beta1.ServiceExportKindName)
	if !owned.IsGone(ctx, r.Live, kind, name) {
		return ctrl.Result{RequeueAfter: liveRetry}, nil
	}
	return r.remove(ctx, name)
}

// remove ends the ports of an export that is gone, and its record.
func (r *Reconciler) remove(ctx context.Context, name types.NamespacedName) (ctrl.Result, error) {
	r.Ports.Remove(name)
	if r.Leading() {
		if err := r.removeRecords(ctx, name); err != nil {
			r.Log.Error(err, "The record of a ServiceExport that is gone cannot be deleted; it is tried again",
				"serviceExport", name)
			return ctrl.Result{RequeueAfter: r.delay(name, err)}, nil
		}
	}
	r.forget(name)
	return ctrl.Result{}, nil
}

func (r *Reconciler) forget(name types.NamespacedName) {
	r.backoff.Forget(name)
	r.exports.seen.Delete(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.unready, name)
	delete(r.failed, name)
}

// exportNames are the exports that exist, or are to be removed. It is safe for concurrent use.
type exportNames struct {
	changes *notify.Source // changes wakes the controller.
	seen    sync.Map       // seen has the names.
}

func newExportNames() *exportNames { return &exportNames{changes: notify.New("", 0)} }

func (e *exportNames) has(name types.NamespacedName) bool {
	_, ok := e.seen.Load(name)
	return ok
}

func (e *exportNames) all() (names []types.NamespacedName) {
	for name := range e.seen.Range {
		names = append(names, name.(types.NamespacedName))
	}
	return names
}

// notify requests a reconciliation of an export that there is.
func (e *exportNames) notify(name types.NamespacedName) {
	if e.has(name) {
		e.changes.NotifyObject(name)
	}
}

// notifyAll requests a reconciliation of every export.
func (e *exportNames) notifyAll() { e.changes.NotifyObjects(e.all()) }

// +kubebuilder:rbac:groups=multicluster.x-k8s.io,resources=serviceexports,verbs=get;list;watch
// +kubebuilder:rbac:groups=multicluster.x-k8s.io,resources=serviceexports/status,verbs=update
// +kubebuilder:rbac:groups=about.k8s.io,resources=clusterproperties,verbs=get

// SetupWithManager adds the controller, and what reads ServiceExports. Both run on every replica.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	ofService := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return r.ifKnown(client.ObjectKeyFromObject(o))
	})
	ofSlice := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return r.ifKnown(types.NamespacedName{Namespace: o.GetNamespace(), Name: upstream.ServiceOf(o)})
	})
	err := ctrl.NewControllerManagedBy(mgr).
		Named("serviceexport").
		Watches(&corev1.Service{}, ofService).
		Watches(&discoveryv1.EndpointSlice{}, ofSlice).
		WatchesRawSource(r.exports.changes).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, NeedLeaderElection: new(false)}).
		Complete(r)
	if err := errors.Join(err, mgr.Add(r)); err != nil {
		return fmt.Errorf("adding the controller of ServiceExports: %w", err)
	}
	return nil
}

// ifKnown returns a request for an export that there is.
func (r *Reconciler) ifKnown(name types.NamespacedName) []reconcile.Request {
	if !r.exports.has(name) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: name}}
}

// Lead reads the account's records, and writes those of this cluster, until the context ends: while
// this replica leads.
func (r *Reconciler) Lead(ctx context.Context) {
	r.EnqueueAll()
	r.feed.run(ctx)
}

// Counts returns how many exports there are, how many of them the account does not have as they
// should be, as far as this replica knows, and whether ServiceExports are read.
func (r *Reconciler) Counts() (exports, failed int, read bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.exports.all()), len(r.failed), r.kind.isRead()
}
