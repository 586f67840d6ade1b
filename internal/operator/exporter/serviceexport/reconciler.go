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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/upstream"
)

const (
	// workers bounds the calls that the account's API gets at once.
	workers = 4
	// clusterTimeout bounds reading and writing an object.
	clusterTimeout = 10 * time.Second
	// liveRetry is the pause before the API server is asked again whether an object is gone.
	liveRetry = 5 * time.Second
	// firstRetry and lastRetry bound the delay after a refusal, which a change elsewhere may end.
	firstRetry = 2 * time.Second
	lastRetry  = 5 * time.Minute
	// unansweredRetry bounds the delay after a call that was not answered.
	unansweredRetry = 10 * time.Second
	// answerWait is how long the first status of an object waits for the answers to its binds.
	answerWait = 2 * time.Second
	// readyFallDelay is how long a Service must have no ready endpoint before its record says so.
	readyFallDelay = time.Second
)

// Account are the account's endpoints, as the exporter may see and change them.
type Account interface {
	ListEndpoints(ctx context.Context, f account.EndpointFilter) (*apiclient.EndpointSnapshot, error)
	CreateEndpoint(ctx context.Context, e account.Endpoint) (*account.Endpoint, error)
	PatchEndpoint(ctx context.Context, id string, p account.EndpointPatch, owner *account.Owner) (
		*account.Endpoint, error)
	DeleteEndpoint(ctx context.Context, id string) error
}

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

// Options are what New needs.
type Options struct {
	// Client reads objects from the cache and writes the status of ServiceExports.
	Client client.Client
	// Live reads them from the API server.
	Live client.Reader
	// Informers are the cache's.
	Informers Informers
	Account   Account
	Watch     WatchFunc
	Upstreams upstream.Rules
	Dial      agent.DialFunc
	Ports     Ports
	// Cluster returns the UID of the cluster: that of its namespace kube-system. It is called while
	// this replica leads.
	Cluster func() string
	// ClusterID is the cluster's id where no ClusterProperty says it; may be "".
	ClusterID string
	// Namespaces are those whose ServiceExports are read; none = all.
	Namespaces []string
	// Leading reports whether this replica holds the Lease.
	Leading  func() bool
	Recorder events.EventRecorder
	// ReportKind is called when the cluster lacks ServiceExports, with what to do.
	ReportKind func(ctx context.Context, missing string)
	// CollectOrphans is called when endpoints of exports that are gone should be deleted soon.
	CollectOrphans func()
	Log            logr.Logger
}

// Reconciler reconciles ServiceExports. New makes one.
type Reconciler struct {
	Options
	changes *notify.Source
	ids     *clusterID
	records *records
	feed    *feed
	kind    kind
	backoff *flowcontrol.Backoff

	mu       sync.Mutex
	seen     map[types.NamespacedName]bool      // exports that exist, or are to be removed
	unready  map[types.NamespacedName]time.Time // since when a Service has no ready endpoint
	failed   map[types.NamespacedName]bool      // exports whose record is not as it should be
	claimed  string                             // the id that the account refused, as another cluster has it
	claimErr error
	claimAt  time.Time // when the account is asked again
}

// New returns a Reconciler.
func New(o Options) *Reconciler {
	r := &Reconciler{Options: o, changes: notify.New("", 0), seen: map[types.NamespacedName]bool{},
		unready: map[types.NamespacedName]time.Time{}, failed: map[types.NamespacedName]bool{},
		backoff: flowcontrol.NewBackOffWithJitter(firstRetry, lastRetry, 0.2)}
	r.records = newRecords(r.notify, r.EnqueueAll)
	r.feed = newFeed(&o, r.records)
	r.ids = &clusterID{live: o.Live, flag: o.ClusterID, inUse: r.inUse, log: o.Log, onChange: func() {
		r.EnqueueAll()
		r.CollectOrphans()
	}}
	return r
}

// notify requests a reconciliation of an export that there is.
func (r *Reconciler) notify(name types.NamespacedName) {
	if r.knows(name) {
		r.changes.NotifyObject(name)
	}
}

// Notify requests a reconciliation of an export: the state of its ports has changed.
func (r *Reconciler) Notify(name types.NamespacedName) { r.changes.NotifyObject(name) }

// EnqueueAll requests a reconciliation of every export.
func (r *Reconciler) EnqueueAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.seen {
		r.changes.NotifyObject(name)
	}
}

// Reconcile binds the ports of an export and, while this replica leads, writes its record and
// status.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	name := req.NamespacedName
	if !r.kind.isRead() {
		return ctrl.Result{}, nil // all are enqueued when it is
	}
	var o v1beta1.ServiceExport
	err := r.Client.Get(ctx, name, &o)
	switch {
	case apierrors.IsNotFound(err):
		return r.missing(ctx, name)
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("reading ServiceExport %s: %w", name, err)
	case o.DeletionTimestamp != nil:
		return r.remove(ctx, name)
	}
	r.see(name)
	found, err := r.resolve(ctx, &o)
	if err != nil {
		return ctrl.Result{}, err
	}
	switch {
	case found.unknown:
		return ctrl.Result{RequeueAfter: liveRetry}, nil // or before, with the cluster's id
	case found.keep:
		r.Ports.Keep(name)
		return ctrl.Result{RequeueAfter: liveRetry}, nil
	}
	r.Ports.Serve(name, found.ports)
	if !r.Leading() || errors.Is(r.known(), errRecordsUnknown) { // all are enqueued when that changes
		return ctrl.Result{}, nil
	}
	return r.report(ctx, &o, &found, r.apply(ctx, name, &found))
}

// missing ends an export that the cache does not have, once the API server itself says that it is
// gone: a cache that was filled from a wrong answer ends nothing.
func (r *Reconciler) missing(ctx context.Context, name types.NamespacedName) (ctrl.Result, error) {
	if !r.knows(name) {
		r.Ports.Remove(name)
		return ctrl.Result{}, nil
	}
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(schema.GroupVersion(v1beta1.GroupVersion).WithKind(v1beta1.ServiceExportKindName))
	if !r.isGone(ctx, name, live) {
		return ctrl.Result{RequeueAfter: liveRetry}, nil
	}
	return r.remove(ctx, name)
}

// isGone reports whether the API server says that it does not have an object, or deletes it.
func (r *Reconciler) isGone(ctx context.Context, name types.NamespacedName, o *metav1.PartialObjectMetadata) bool {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	err := r.Live.Get(ctx, name, o)
	return apierrors.IsNotFound(err) || err == nil && o.DeletionTimestamp != nil
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

func (r *Reconciler) see(name types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[name] = true
}

func (r *Reconciler) knows(name types.NamespacedName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[name]
}

func (r *Reconciler) inUse() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen) > 0
}

func (r *Reconciler) forget(name types.NamespacedName) {
	r.backoff.DeleteEntry(name.String())
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.seen, name)
	delete(r.unready, name)
	delete(r.failed, name)
}
