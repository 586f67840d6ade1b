// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceimport

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/clusterset"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderaddresses"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/namespaces"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/informer"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/owned"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
)

// +kubebuilder:rbac:groups=multicluster.x-k8s.io,resources=serviceimports,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=multicluster.x-k8s.io,resources=serviceimports/status,verbs=update

// serveRetry is the delay before ServiceImports that the API server does not serve, or refuses, are
// listed again.
const serveRetry = 5 * time.Second

// Exports provides what clusters of the account export, from memory; *endpointsync.Set implements
// it.
type Exports interface {
	// Exports returns the exports of a name. While known is false, nothing is removed; the name is
	// notified when it becomes true.
	Exports(name types.NamespacedName) (exports []clusterset.Export, known bool)
	// ExportedNames returns the names with exports.
	ExportedNames() []types.NamespacedName
	// Availability returns whether the account has been read, how many endpoints the hostname has,
	// and which of its URLs have none online.
	Availability(hostname string) (known bool, endpoints int, offline []string)
}

// Options configure a Reconciler.
type Options struct {
	// Client reads Services, EndpointSlices of ours, BoundEndpoints, Namespaces and the
	// KubernetesOperator from the cache.
	Client client.Client
	// Live reads from the API server, and watches ServiceImports.
	Live      client.WithWatch
	Anchors   *installation.Anchors // Anchors own ServiceImports.
	Exports   Exports
	Addresses forwarderaddresses.Provider
	// Changes names what may have to change: it is notified of exports and of Addresses' keys.
	Changes *notify.Source
	// Namespaces decides which namespaces get ServiceImports. It must not list them.
	Namespaces namespaces.Policy
	Recorder   events.EventRecorder // Recorder's events regard the KubernetesOperator.
	// Domain of the names that pods call, for messages, such as clusterset.local.
	Domain string
	Log    logr.Logger
	// ServeRetry is the delay before ServiceImports that the API server does not serve are listed
	// again; 0: 5 s.
	ServeRetry time.Duration
}

// Reconciler writes ServiceImports with what belongs to them. Only the leader runs it.
type Reconciler struct {
	Options
	imports  *informer.Informer[*mcsv1beta1.ServiceImport]
	problems problems
	objects  owned.Writer
}

// New returns a Reconciler.
func New(o Options) *Reconciler {
	r := &Reconciler{Options: o, problems: problems{byKey: map[types.NamespacedName]*status.Problem{}},
		objects: owned.Writer{Client: o.Client, Live: o.Live, Installation: o.Anchors.Installation,
			Clock: clock.RealClock{}}}
	notify := func(object any) { o.Changes.NotifyObject(client.ObjectKeyFromObject(object.(client.Object))) }
	r.imports = informer.New(informer.Options[*mcsv1beta1.ServiceImport]{
		Client: o.Live, Kind: &mcsv1beta1.ServiceImport{}, List: &mcsv1beta1.ServiceImportList{},
		Transform: cache.TransformStripManagedFields(), Retry: cmp.Or(o.ServeRetry, serveRetry), Log: o.Log,
		Refused: "ServiceImports cannot be read; asking again", Readable: "ServiceImports can be read",
		Events: toolscache.ResourceEventHandlerFuncs{AddFunc: notify, UpdateFunc: func(_, now any) { notify(now) },
			DeleteFunc: notify},
		Changed: r.notifyAll,
	})
	return r
}

// notifyAll requests a reconciliation of all names once the ServiceImports are read.
func (r *Reconciler) notifyAll(refusal error) {
	if refusal != nil {
		return
	}
	r.Changes.NotifyObjects(append(r.Exports.ExportedNames(), r.importNames(r.Anchors.Installation.Owns)...))
}

// importNames returns the names of the known ServiceImports that match.
func (r *Reconciler) importNames(match func(metav1.Object) bool) []types.NamespacedName {
	var names []types.NamespacedName
	for _, o := range r.imports.Objects() {
		if match(o) {
			names = append(names, client.ObjectKeyFromObject(o))
		}
	}
	return names
}

// Runnable returns what reads ServiceImports.
func (r *Reconciler) Runnable() manager.Runnable { return r.imports }

// Condition returns the condition ServiceImportsReady of the KubernetesOperator, without generation
// and time; nil = it is not known yet. It is safe for concurrent use.
func (r *Reconciler) Condition() *metav1.Condition { return r.problems.condition(r.imports.Problem()) }

// Reconcile makes the ServiceImport of a name what the exports and the namespace require.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	key := req.NamespacedName
	found := r.reconcile(ctx, key)
	if r.problems.set(key, found) {
		related := &corev1.ObjectReference{APIVersion: mcsv1beta1.GroupVersion.String(),
			Kind: mcsv1beta1.ServiceImportKindName, Namespace: key.Namespace, Name: key.Name}
		note := notImported(key, found)
		r.Recorder.Eventf(r.Anchors.Installation.Operator(ctx, r.Client), related, corev1.EventTypeWarning,
			found.Reason, "Import", "%.900s", note)
		r.Log.Info("A ServiceImport is not as it should be", "import", key.String(), "reason", found.Reason,
			"problem", found.Message)
	}
	if found == nil {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: found.RetryAfter}, nil
}

func (r *Reconciler) reconcile(ctx context.Context, key types.NamespacedName) *status.Problem {
	cached, err := r.imports.Get(key)
	live := cached.DeepCopy()
	exports, known := r.Exports.Exports(key)
	if err != nil || !known {
		return r.refresh(ctx, key)
	}
	if len(exports) == 0 {
		return r.remove(ctx, key, live)
	}
	switch state, err := r.namespaceState(ctx, key.Namespace); {
	case err != nil:
		return first(problemOf(err), r.refresh(ctx, key))
	case state == namespaceMissing:
		r.Addresses.Forget(key.String())
		return nil
	case state == namespaceRefused:
		return r.remove(ctx, key, live)
	}
	merged := clusterset.Merge(exports)
	return r.ensure(ctx, live, &merged)
}

// ensure writes the ServiceImport and what belongs to it. live is nil if there is none.
func (r *Reconciler) ensure(ctx context.Context, live *mcsv1beta1.ServiceImport, i *clusterset.Import) *status.Problem {
	key := types.NamespacedName{Namespace: i.Namespace, Name: i.Name}
	live, derived, found := r.ensureAddressed(ctx, live, i)
	var pods podCount
	switch {
	case found != nil:
		found = first(found, r.refresh(ctx, key))
	case derived == nil:
		pods, found = r.ensurePods(ctx, i, live)
		var unwritten *status.Problem
		live, unwritten = r.setFamilies(ctx, live, pods.families)
		found = first(found, unwritten, r.removeDerived(ctx, key))
	default:
		if found = r.ensureSlices(ctx, i, derived); found == nil {
			found = first(r.updateDerived(ctx, derived, derivedService(r.Anchors.Installation, i, live)),
				r.removePods(ctx, key, nil))
		}
	}
	found = first(found, r.reportStatus(ctx, live, i, pods, found))
	if found != nil {
		return found
	}
	if wait := installation.RecheckAfter(live.OwnerReferences); wait > 0 {
		return &status.Problem{Quiet: true, RetryAfter: wait}
	}
	return nil
}

// ensureAddressed makes the ServiceImport and, unless it is headless, its derived Service, which
// still has the ports that go. The ServiceImport is nil if it is not ours.
func (r *Reconciler) ensureAddressed(
	ctx context.Context, live *mcsv1beta1.ServiceImport, i *clusterset.Import,
) (*mcsv1beta1.ServiceImport, *corev1.Service, *status.Problem) {
	owners, err := r.Anchors.TargetOwners(ctx, i.Namespace)
	if err != nil {
		return nil, nil, problemOf(err)
	}
	desired := newImport(r.Anchors.Installation, i, owners)
	live, found := r.ensureImport(ctx, live, desired)
	if found != nil {
		return nil, nil, found
	}
	var derived *corev1.Service
	if i.Spec.Type == account.ExportClusterSetIP {
		if derived, found = r.ensureDerived(ctx, i, live); found != nil {
			return live, nil, found
		}
	}
	live, found = r.updateImport(ctx, live, desired, derived)
	return live, derived, found
}

// namespaceState is what a namespace means for ServiceImports.
type namespaceState int

const (
	namespaceAllowed namespaceState = iota
	namespaceMissing                // it does not exist, so that nothing is there to remove
	namespaceRefused                // it must not have ServiceImports of ours
)

func (r *Reconciler) namespaceState(ctx context.Context, name string) (namespaceState, error) {
	if r.Namespaces.RefusalReason(name) != "" {
		return namespaceRefused, nil
	}
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	switch err := r.Client.Get(ctx, client.ObjectKey{Name: name}, ns); {
	case apierrors.IsNotFound(err):
		return namespaceMissing, nil
	case err != nil:
		return 0, fmt.Errorf("reading namespace %s: %w", name, err)
	case ns.DeletionTimestamp != nil, r.Namespaces.MissingConsent(name, ns.Labels) != "":
		return namespaceRefused, nil
	}
	return namespaceAllowed, nil
}

const workers = 8

// SetupWithManager adds the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	derived := builder.WithPredicates(predicate.NewPredicateFuncs(r.isDerived))
	return ctrl.NewControllerManagedBy(mgr).
		Named("serviceimport").
		WatchesRawSource(r.Changes).
		Watches(ns, handler.EnqueueRequestsFromMapFunc(r.inNamespace), builder.WithPredicates(r.namespaceChanged())).
		Watches(&v1alpha1.BoundEndpoint{}, handler.EnqueueRequestsFromMapFunc(ofBoundEndpoint)).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(ofDerived), derived).
		Watches(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(ofDerived), derived).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}

// isDerived reports whether a Service or an EndpointSlice belongs to a ServiceImport of ours.
func (r *Reconciler) isDerived(o client.Object) bool {
	return r.Anchors.Installation.Marked(o) && importOf(o) != ""
}

// importOf returns the name of the ServiceImport that a Service or an EndpointSlice belongs to.
func importOf(o client.Object) string {
	return cmp.Or(o.GetLabels()[mcsv1beta1.LabelServiceName], o.GetLabels()[labelImport])
}

// ofDerived returns a request for the ServiceImport that a Service or an EndpointSlice belongs to.
func ofDerived(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: importOf(o)}}}
}

// ofBoundEndpoint returns a request for the ServiceImport whose target ports a BoundEndpoint has.
func ofBoundEndpoint(_ context.Context, o client.Object) []reconcile.Request {
	b := o.(*v1alpha1.BoundEndpoint)
	if b.Spec.Cluster == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: b.Spec.Namespace,
		Name: b.Spec.Service}}}
}

// inNamespace returns requests for what is exported, or imported, under the name of a Namespace.
func (r *Reconciler) inNamespace(_ context.Context, ns client.Object) []reconcile.Request {
	names := r.importNames(func(o metav1.Object) bool {
		return o.GetNamespace() == ns.GetName() && r.Anchors.Installation.Owns(o)
	})
	for _, name := range r.Exports.ExportedNames() {
		if name.Namespace == ns.GetName() && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return notify.Requests(names)
}

// namespaceChanged passes the creation and deletion of a Namespace and changes of its consent.
func (r *Reconciler) namespaceChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, now := r.Namespaces.MissingConsent(e.ObjectOld.GetName(), e.ObjectOld.GetLabels()),
			r.Namespaces.MissingConsent(e.ObjectNew.GetName(), e.ObjectNew.GetLabels())
		return before != now ||
			(e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil)
	}}
}
