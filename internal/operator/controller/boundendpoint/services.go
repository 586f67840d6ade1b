// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/namespaces"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/owned"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
	"github.com/fairlead-dev/fairlead/internal/path"
)

// serviceWriter reads, makes, repairs and deletes the Services of hostnames, and leaves those of
// other owners alone. It is safe for concurrent use.
type serviceWriter struct {
	client  client.Client
	live    client.Reader
	targets *namespaces.Informers // nil: client has the Services of all namespaces
	own     installation.Installation
	anchors []string // names of the anchors that own Services
	// forwarders are the labels by which upstream Services select the forwarders.
	forwarders map[string]string
	owned      *owned.Writer
	takeover   *nameTakeover
	clock      clock.PassiveClock
	requests   *requestMapper
	created    sync.Map // keys of Services that were created and not in the cache since
	replaced   sync.Map // *corev1.Service by key: deleted to be made again, with labels and annotations of others
}

// ensure makes the Service what is desired, or returns what prevents it.
func (w *serviceWriter) ensure(
	ctx context.Context, b *v1alpha1.BoundEndpoint, desired *corev1.Service,
) (*corev1.Service, *status.Problem) {
	key := client.ObjectKeyFromObject(desired)
	live, isNew := &corev1.Service{}, false
	err := w.service(ctx, key, live)
	if apierrors.IsNotFound(err) {
		if wait := w.takeover.remaining(key, b, w.clock.Now()); wait > 0 {
			return nil, &status.Problem{Reason: v1alpha1.ReasonConflict, RetryAfter: wait,
				Message: fmt.Sprintf("Service %s of another owner was deleted; it is made here if the name stays free",
					key), ConflictingService: key.String()}
		}
		live, isNew, err = w.create(ctx, w.withReplaced(key, desired))
	}
	if err != nil {
		return nil, problemFromError(fmt.Errorf("creating Service %s: %w", key, err))
	}
	if !isNew && !w.isOurs(live, b) {
		w.takeover.markTaken(key)
		w.replaced.Delete(key)
		return nil, &status.Problem{Reason: v1alpha1.ReasonConflict, ConflictingService: key.String(),
			Message: fmt.Sprintf("Service %s is not changed: it belongs to %s", key, w.describeOwner(live))}
	}
	w.takeover.forget(key)
	if live.DeletionTimestamp != nil {
		return nil, status.Problemf(v1alpha1.ReasonServiceTerminating, path.ServiceTerminating, key)
	}
	return w.repair(ctx, live, desired)
}

// create creates the Service, or returns the one that already has its name.
func (w *serviceWriter) create(
	ctx context.Context, desired *corev1.Service,
) (s *corev1.Service, isNew bool, err error) {
	s, isNew, err = w.owned.CreateService(ctx, desired)
	if isNew {
		w.created.Store(client.ObjectKeyFromObject(s), true)
		w.replaced.Delete(client.ObjectKeyFromObject(s))
		log.FromContext(ctx).Info("Created Service", "service", client.ObjectKeyFromObject(s))
	}
	return s, isNew, err
}

// withReplaced returns the desired Service with the labels and annotations that others gave to the
// one that it replaces.
func (w *serviceWriter) withReplaced(key client.ObjectKey, desired *corev1.Service) *corev1.Service {
	replaced, ok := w.replaced.Load(key)
	if !ok {
		return desired
	}
	made := desired.DeepCopy()
	merged, _ := owned.RepairedService(replaced.(*corev1.Service), desired)
	made.Labels, made.Annotations = merged.Labels, merged.Annotations
	return made
}

// repair updates a Service of ours if it differs. One that cannot be updated, because it was made
// headless, is deleted; the deletion event re-creates it.
func (w *serviceWriter) repair(ctx context.Context, live, desired *corev1.Service) (*corev1.Service, *status.Problem) {
	keepPortNames(desired.Spec.Ports, live.Spec.Ports)
	key := client.ObjectKeyFromObject(live)
	if headless(live) && desired.Spec.Type == corev1.ServiceTypeClusterIP {
		if err := w.remove(ctx, live); err != nil {
			return nil, problemFromError(err)
		}
		w.replaced.Store(key, live)
		return nil, owned.ProblemOf(owned.ErrRepeat)
	}
	next, repaired, err := w.owned.RepairService(ctx, live, desired)
	if err != nil {
		return nil, problemFromError(fmt.Errorf("repairing Service %s: %w", key, err))
	}
	if repaired {
		log.FromContext(ctx).Info("Repaired Service", "service", key)
	}
	return next, nil
}

func headless(s *corev1.Service) bool { return s.Spec.ClusterIP == corev1.ClusterIPNone }

// removeAll deletes every Service of ours that the hostname has, except those in keep. It tries all
// of them even after a failure, and returns those that are left.
func (w *serviceWriter) removeAll(
	ctx context.Context, hostname string, recorded []v1alpha1.ServiceRef, keep ...*corev1.Service,
) ([]v1alpha1.ServiceRef, error) {
	services, err := w.list(ctx, hostname, recorded)
	errs := []error{err}
	var left []v1alpha1.ServiceRef
	if err != nil {
		left = recorded // they may not be among services
	}
	for i := range services {
		if slices.ContainsFunc(keep, func(s *corev1.Service) bool {
			return client.ObjectKeyFromObject(s) == client.ObjectKeyFromObject(&services[i])
		}) {
			continue
		}
		if err := w.remove(ctx, &services[i]); err != nil {
			errs = append(errs, err)
			if ref := serviceRef(&services[i]); !slices.Contains(left, ref) {
				left = append(left, ref)
			}
		}
	}
	return left, errors.Join(errs...)
}

// remove deletes this Service in this version.
func (w *serviceWriter) remove(ctx context.Context, s *corev1.Service) error {
	if s.DeletionTimestamp != nil {
		return nil
	}
	key := client.ObjectKeyFromObject(s)
	if err := owned.Delete(ctx, w.client, s); err != nil {
		return fmt.Errorf("deleting Service %s: %w", key, err)
	}
	log.FromContext(ctx).Info("Deleted Service", "service", key)
	return nil
}

// list lists, from the caches, the Services that belong to the hostname and may be deleted: those
// provably ours and those recorded in the status. With an error it returns what it found so far.
func (w *serviceWriter) list(
	ctx context.Context, hostname string, recorded []v1alpha1.ServiceRef,
) ([]corev1.Service, error) {
	var list corev1.ServiceList
	if err := w.client.List(ctx, &list, client.MatchingFields{indexHostname: hostname}); err != nil {
		return nil, fmt.Errorf("listing the Services of %s: %w", hostname, err)
	}
	all := slices.DeleteFunc(list.Items, func(s corev1.Service) bool {
		return !w.provablyOurs(&s) || w.isOtherUpstream(ctx, &s, hostname)
	})
	var errs []error
	if name, namespace, _ := strings.Cut(hostname, "."); w.targets != nil && w.targets.Contains(namespace) {
		s := corev1.Service{}
		err := w.targets.Get(client.ObjectKey{Namespace: namespace, Name: name}, &s)
		if err == nil && w.provablyOurs(&s) {
			all = append(all, s)
		}
		errs = append(errs, client.IgnoreNotFound(err))
	}
	for _, ref := range recorded {
		if slices.ContainsFunc(all, func(s corev1.Service) bool { return s.UID == ref.UID }) {
			continue
		}
		s := corev1.Service{}
		err := w.service(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, &s)
		if err == nil && s.UID == ref.UID && w.own.Marked(&s) {
			all = append(all, s)
		}
		errs = append(errs, client.IgnoreNotFound(err))
	}
	return all, errors.Join(errs...)
}

// isOtherUpstream reports whether the Service has the name of another hostname's upstream Service,
// regardless of its annotation.
func (w *serviceWriter) isOtherUpstream(ctx context.Context, s *corev1.Service, hostname string) bool {
	if s.Namespace != w.own.Namespace {
		return false
	}
	for _, request := range w.requests.byIndex(ctx, indexUpstream, s.Name) {
		if request.Name != hostname {
			return true
		}
	}
	return false
}

// service reads a Service from the cache that holds it. One that the cache lacks although it was
// created is read from the API server: the cache may be stale.
func (w *serviceWriter) service(ctx context.Context, key client.ObjectKey, into *corev1.Service) error {
	err := w.cachedService(ctx, key, into)
	if _, created := w.created.Load(key); !created {
		return err
	}
	if apierrors.IsNotFound(err) {
		err = w.liveService(ctx, key, into)
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	w.created.Delete(key) // the cache has it, or it is gone
	return err
}

func (w *serviceWriter) cachedService(ctx context.Context, key client.ObjectKey, into *corev1.Service) error {
	if w.targets == nil || key.Namespace == w.own.Namespace {
		return w.client.Get(ctx, key, into)
	}
	if w.targets.Contains(key.Namespace) {
		return w.targets.Get(key, into)
	}
	return w.liveService(ctx, key, into) // the namespace was listed once
}

// liveService reads a Service from the API server. Without the rights to read it, the Service
// counts as gone: it is deleted with its owner.
func (w *serviceWriter) liveService(ctx context.Context, key client.ObjectKey, into *corev1.Service) error {
	err := w.live.Get(ctx, key, into)
	if apierrors.IsForbidden(err) {
		return apierrors.NewNotFound(corev1.Resource("services"), key.Name)
	}
	return err
}

// isOurs reports whether a Service at the name of one of the hostname's Services belongs to this
// installation and to the hostname.
func (w *serviceWriter) isOurs(s *corev1.Service, b *v1alpha1.BoundEndpoint) bool {
	if slices.Contains(b.Status.Services, serviceRef(s)) {
		return w.own.Marked(s)
	}
	hostname := serviceHostname(w.own, s)
	return w.own.Owns(s) && (hostname == b.Name || hostname == "") && !slices.ContainsFunc(s.OwnerReferences,
		w.notAnchor)
}

// hasProjection reports whether the Service is the hostname's, and as its status describes it.
func (w *serviceWriter) hasProjection(s *corev1.Service, b *v1alpha1.BoundEndpoint) bool {
	want := corev1.ServiceTypeExternalName
	if recordedProjection(b) == v1alpha1.ProjectionEndpointSlice {
		want = corev1.ServiceTypeClusterIP
	}
	return w.isOurs(s, b) && s.DeletionTimestamp == nil && s.Spec.Type == want && !headless(s)
}

// provablyOurs reports whether a Service whose UID is not recorded may be deleted: besides the
// marks, its only owners are our anchors. One without owners, as a backup restores it, must lead to
// forwarders and nowhere else.
func (w *serviceWriter) provablyOurs(s *corev1.Service) bool {
	return w.own.Owns(s) && !slices.ContainsFunc(s.OwnerReferences, w.notAnchor) &&
		(len(s.OwnerReferences) > 0 || w.leadsToForwarders(s))
}

// leadsToForwarders reports whether the Service leads to forwarders, or only to slices of ours: it
// has no selector then, and all of its ports are named as ours are.
func (w *serviceWriter) leadsToForwarders(s *corev1.Service) bool {
	switch {
	case s.Annotations[installation.AnnotationHostname] == "":
		return false
	case s.Namespace == w.own.Namespace:
		return maps.Equal(s.Spec.Selector, w.forwarders)
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		return strings.Contains(s.Spec.ExternalName, "."+w.own.Namespace+".svc.")
	}
	return len(s.Spec.Selector) == 0 && !slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool {
		return p.AppProtocol == nil || !strings.HasSuffix(p.Name, fmt.Sprintf("-%d", p.Port))
	})
}

// notAnchor reports whether the owner is none of our anchors. It ignores the UID: an installation
// adopts what an earlier one left.
func (w *serviceWriter) notAnchor(owner metav1.OwnerReference) bool {
	return owner.APIVersion != rbacv1.SchemeGroupVersion.String() || !slices.Contains(w.anchors, owner.Name)
}

// describeOwner describes the owner of a foreign Service for a message.
func (w *serviceWriter) describeOwner(s *corev1.Service) string {
	i := slices.IndexFunc(s.OwnerReferences, w.notAnchor)
	if i >= 0 && w.own.Owns(s) {
		return strings.ToLower(s.OwnerReferences[i].Kind) + " " + s.OwnerReferences[i].Name
	}
	return describeOwner(w.own, s)
}

// serviceHostname returns the hostname that a Service of ours belongs to: the name and namespace of
// a target Service, the annotation of an upstream Service.
func serviceHostname(own installation.Installation, service client.Object) string {
	if service.GetNamespace() == own.Namespace {
		return service.GetAnnotations()[installation.AnnotationHostname]
	}
	return service.GetName() + "." + service.GetNamespace()
}

func serviceRef(s *corev1.Service) v1alpha1.ServiceRef {
	return v1alpha1.ServiceRef{Namespace: s.Namespace, Name: s.Name, UID: s.UID}
}

// serviceRefs returns the reference of the made Service or, if it could not be made or checked, the
// recorded one.
func serviceRefs(b *v1alpha1.BoundEndpoint, desired, existing *corev1.Service) []v1alpha1.ServiceRef {
	if existing != nil {
		return []v1alpha1.ServiceRef{serviceRef(existing)}
	}
	return slices.DeleteFunc(slices.Clone(b.Status.Services), func(ref v1alpha1.ServiceRef) bool {
		return ref.Namespace != desired.Namespace || ref.Name != desired.Name
	})
}

// nameTakeover records names that foreign Services have or had, so that a team that deletes and
// re-creates a Service does not lose its name. It is safe for concurrent use.
type nameTakeover struct {
	delay time.Duration

	mu      sync.Mutex
	freedAt map[client.ObjectKey]time.Time // zero: not free
}

func newNameTakeover(delay time.Duration) *nameTakeover {
	return &nameTakeover{delay: delay, freedAt: map[client.ObjectKey]time.Time{}}
}

func (t *nameTakeover) markTaken(key client.ObjectKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.freedAt[key] = time.Time{}
}

func (t *nameTakeover) forget(key client.ObjectKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.freedAt, key)
}

// remaining returns how long a name that is free now has to stay free. After a restart, the
// object's status records the conflict.
func (t *nameTakeover) remaining(key client.ObjectKey, b *v1alpha1.BoundEndpoint, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	since, known := t.freedAt[key]
	if !known && b.Status.ConflictingService != key.String() {
		return 0
	}
	if since.IsZero() {
		since = now
		t.freedAt[key] = now
	}
	return t.delay - now.Sub(since)
}
