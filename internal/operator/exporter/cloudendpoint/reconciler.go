// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudendpoint

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/accountclient"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/policy"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
)

const (
	// workers bounds the calls that the account's API gets at once.
	workers = 4
	// clusterTimeout bounds reading and writing an object.
	clusterTimeout = 10 * time.Second
	// lastRetry is the longest delay after a refusal, which a change elsewhere may end.
	lastRetry = time.Minute
)

// URLs are those that objects may have.
type URLs interface {
	// CheckURL parses the URL of an object in the namespace, and returns why it is not admitted; "" if
	// it is.
	CheckURL(namespace, binding, url string) (parsed account.EndpointURL, problem string)
}

// Options are what New needs.
type Options struct {
	// Client reads CloudEndpoints from the cache and writes their status.
	Client client.Client
	// Live reads them from the API server.
	Live    client.Reader
	Account accountclient.API // Account are the account's endpoints, as the exporter may see and change them.
	// Policies reads traffic policies.
	Policies *policy.Reader
	URLs     URLs
	// Replica is asked for the cluster while this replica leads; the others do nothing.
	accountclient.Replica
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
}

// Reconciler reconciles CloudEndpoints. New makes one.
type Reconciler struct {
	Options
	backoff accountclient.Backoff

	changes *notify.Source

	mu   sync.Mutex
	rows map[types.NamespacedName]row
}

// row is what is known of an object's endpoint.
type row struct {
	id      string
	version account.ResourceVersion
	policy  string // digest of the text that this process wrote; "" = it wrote none
	// uncertain is the endpoint whose creation was not answered.
	uncertain *account.Endpoint
}

// New returns a Reconciler.
func New(o Options) *Reconciler {
	return &Reconciler{Options: o, changes: notify.New("", 0), rows: map[types.NamespacedName]row{},
		backoff: accountclient.NewBackoff(lastRetry)}
}

// Reconcile makes the account's endpoint as the object asks for, or deletes it.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if !r.Leading() {
		return ctrl.Result{}, nil
	}
	var o v1alpha1.CloudEndpoint
	err := r.Client.Get(ctx, req.NamespacedName, &o)
	switch {
	case apierrors.IsNotFound(err):
		return r.retry(req.NamespacedName, r.remove(ctx, req.NamespacedName))
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("reading CloudEndpoint %s: %w", req, err)
	case o.DeletionTimestamp != nil:
		return r.retry(req.NamespacedName, r.removeEndpoints(ctx, req.NamespacedName, o.Status.ID))
	}
	return r.reportStatus(ctx, &o, r.apply(ctx, &o))
}

// outcome is what came of a reconciliation.
type outcome struct {
	refused  *status.Problem   // refused is why the spec was not accepted; nil if it was.
	unbound  *status.Problem   // unbound is why the account does not have it; nil if it does, or refused says why.
	kept     bool              // kept is set if, with a problem, an endpoint of before stays as it is.
	endpoint *account.Endpoint // endpoint is nil if the account has none, or it could not be read.
	removed  bool              // the account has none
	// unchanged means that the account could not be asked, and that nothing was to be changed as
	// far as is known: the status stays.
	unchanged bool
}

// apply makes the account's endpoint as the object asks for.
func (r *Reconciler) apply(ctx context.Context, o *v1alpha1.CloudEndpoint) outcome {
	key := client.ObjectKeyFromObject(o)
	want, found := r.desired(ctx, o)
	if found.refused != nil {
		if !found.kept { // the problem is reported, and the removal repeated
			found.refused.Err = r.removeEndpoints(ctx, key, o.Status.ID)
			found.removed = found.refused.Err == nil
		}
		return found
	}
	known := r.known(key)
	now, err := r.ensure(ctx, key, o.Status.ID, want)
	if err == nil {
		return outcome{endpoint: now}
	}
	out := outcome{unbound: problemOf(err), kept: true, endpoint: now}
	if accountclient.Unanswered(err) {
		out.unchanged = isBound(o) && (known.policy == "" || known.policy == digest(want.TrafficPolicy))
	} else {
		out.removed = now == nil
	}
	return out
}

// desired returns the endpoint that the object asks for, or why its spec is refused.
func (r *Reconciler) desired(ctx context.Context, o *v1alpha1.CloudEndpoint) (account.Endpoint, outcome) {
	binding := account.BindingKubernetes
	if len(o.Spec.Bindings) > 0 {
		binding = o.Spec.Bindings[0]
	}
	u, refused := r.URLs.CheckURL(o.Namespace, binding, o.Spec.URL)
	if refused != "" {
		return account.Endpoint{}, outcome{refused: status.Problemf(v1alpha1.ReasonURLNotAllowed, "%s", refused)}
	}
	text, err := r.Policies.Text(ctx, o.Namespace, o.Spec.TrafficPolicy, u.Scheme, binding, nil)
	if err != nil {
		return account.Endpoint{}, outcome{refused: policyProblem(err), kept: true}
	}
	e := account.Endpoint{
		URL: u.String(), Scheme: u.Scheme, Host: u.Host, Port: u.Port, Bindings: []string{binding},
		EndpointSettings: account.EndpointSettings{Description: o.Spec.Description, Metadata: o.Spec.Metadata,
			PoolingEnabled: o.Spec.PoolingEnabled}, TrafficPolicy: text,
		Owner: r.owner(client.ObjectKeyFromObject(o), o.UID),
	}
	if o.Spec.Backend != nil {
		e.BackendID = o.Spec.Backend.ID
	}
	return e, outcome{}
}

// owner returns the object as the account names it.
func (r *Reconciler) owner(key types.NamespacedName, uid types.UID) *account.Owner {
	return &account.Owner{Cluster: r.Cluster(), Kind: account.KindCloudEndpoint, Namespace: key.Namespace,
		Name: key.Name, UID: string(uid)}
}

// remove deletes the endpoint of an object that the cache no longer has. The API server must say
// so, too: a cache that was filled from an empty answer would otherwise empty the account.
func (r *Reconciler) remove(ctx context.Context, key types.NamespacedName) error {
	if known := r.known(key); known.id == "" && known.uncertain == nil {
		return nil // internal/operator/exporter/orphans finds it if there is one
	}
	live, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	var o v1alpha1.CloudEndpoint
	switch err := r.Live.Get(live, key, &o); {
	case err == nil && o.DeletionTimestamp == nil:
		return nil // it was made again, and its event follows
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("reading CloudEndpoint %s: %w", key, err)
	}
	return r.removeEndpoints(ctx, key, o.Status.ID)
}

// retry returns when an object is reconciled again that has no status any more. Errors are not
// returned, as the controller would log each.
func (r *Reconciler) retry(key types.NamespacedName, err error) (ctrl.Result, error) {
	if err == nil {
		r.backoff.Forget(key)
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: r.backoff.Delay(key, err)}, nil
}

// indexConfigMap finds CloudEndpoints by the ConfigMap of their traffic policy.
const indexConfigMap = "cloudendpoint.trafficPolicy.configMap"

// Index adds the index that the Reconciler's Client needs.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &v1alpha1.CloudEndpoint{}, indexConfigMap, func(o client.Object) []string {
		if name := policy.ConfigMapName(o.(*v1alpha1.CloudEndpoint).Spec.TrafficPolicy); name != "" {
			return []string{name}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("indexing CloudEndpoints: %w", err)
	}
	return nil
}

// SetupWithManager adds the controller. It runs on every replica, as one that gets the Lease later
// has to know the objects.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	build := ctrl.NewControllerManagedBy(mgr).
		Named("cloudendpoint").
		For(&v1alpha1.CloudEndpoint{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(r.changes).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, NeedLeaderElection: new(false)})
	if r.Policies.ReadsConfigMaps() {
		build = build.WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.referringTo))
	}
	return build.Complete(r)
}

// EnqueueAll has every object reconciled: this replica leads since a moment ago.
func (r *Reconciler) EnqueueAll(ctx context.Context) {
	r.changes.NotifyObjects(notify.Names(ctx, r.Client, &v1alpha1.CloudEndpointList{}))
}

// referringTo returns requests for the objects whose traffic policy is in the ConfigMap.
func (r *Reconciler) referringTo(ctx context.Context, m client.Object) []reconcile.Request {
	return notify.Requests(notify.Names(ctx, r.Client, &v1alpha1.CloudEndpointList{},
		client.InNamespace(m.GetNamespace()), client.MatchingFields{indexConfigMap: m.GetName()}))
}
