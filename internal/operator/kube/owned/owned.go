// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package owned writes Services and EndpointSlices of an installation. Input: the live and the
// desired object. Output: the object as desired, or an error that ProblemOf classifies. The callers
// are the controllers of BoundEndpoints and of ServiceImports, which decide what is desired and
// report what prevents it.
package owned

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
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	utilnet "k8s.io/utils/net"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
)

// RefusalRetry is the delay before a request that the API server refused is repeated, unless an
// event comes earlier.
const RefusalRetry = 30 * time.Second

// maxAttempts is how often a write is repeated at once, once every status.ConflictRetry.
const maxAttempts = 20

// ErrForeign means that an object belongs to another owner.
var ErrForeign = errors.New("the object belongs to another owner")

// ErrRepeat means that a write has to be repeated at once.
var ErrRepeat = errors.New("the write is repeated")

// Writer writes Services and EndpointSlices. Its methods are safe for concurrent use.
type Writer struct {
	Client       client.Client
	Live         client.Reader // Live reads from the API server.
	Installation installation.Installation
	Clock        clock.PassiveClock

	attempts sync.Map // attempts since the last success, by the key of a Service or the key of slices
	changes  sync.Map // *admissionChange by kind and name
}

// again counts an attempt and reports whether to repeat it.
func (w *Writer) again(key any) bool {
	count, _ := w.attempts.LoadOrStore(key, 0)
	w.attempts.Store(key, count.(int)+1)
	return count.(int) < maxAttempts
}

// Forget drops what is remembered of a Service, or of the slices of a key.
func (w *Writer) Forget(key any) { w.attempts.Delete(key) }

// writeService writes a Service that requests an address which it had before: the second of two, or
// its only one. While that is still allocated, as the API server frees an address shortly after the
// deletion of its Service, the write is to be repeated. If it has been given to another Service, or
// the cluster's ranges have changed, the API server chooses.
func (w *Writer) writeService(s *corev1.Service, write func() error) (err error) {
	key, asked := client.ObjectKeyFromObject(s), s.DeepCopy()
	defer func() {
		if err == nil {
			w.Forget(key)
		}
	}()
	err = write()
	if asked.Spec.ClusterIP == "" || !apierrors.IsInvalid(err) {
		return err
	}
	if strings.Contains(err.Error(), "already allocated") && w.again(key) {
		return errors.Join(ErrRepeat, err)
	}
	asked.DeepCopyInto(s)
	if len(asked.Spec.ClusterIPs) < 2 {
		s.Spec.ClusterIP = ""
	}
	s.Spec.ClusterIPs, s.Spec.IPFamilies = nil, nil
	return write()
}

// CreateService creates the Service and returns it, or the one that already has its name. A new one
// has the first of the addresses that are desired: RepairedService adds the second.
func (w *Writer) CreateService(
	ctx context.Context, desired *corev1.Service,
) (s *corev1.Service, isNew bool, err error) {
	made := desired.DeepCopy()
	requestOneAddress(&made.Spec)
	err = w.writeService(made, func() error { return w.Client.Create(ctx, made) })
	if !apierrors.IsAlreadyExists(err) {
		return made, err == nil, err
	}
	live := &corev1.Service{} // the cache has not seen it yet
	if err := w.Live.Get(ctx, client.ObjectKeyFromObject(desired), live); err != nil {
		return nil, false, fmt.Errorf("reading it: %w", err)
	}
	return live, false, nil
}

// RepairService makes live, a Service, as desired, and returns it. repaired reports whether it was
// not and is now: see AdmissionChanged for what admission keeps it from.
func (w *Writer) RepairService(
	ctx context.Context, live, desired *corev1.Service,
) (s *corev1.Service, repaired bool, err error) {
	next, different := RepairedService(live, desired)
	if !different {
		w.changes.Delete(describe(live))
		return live, false, nil
	}
	second := live.Spec.ClusterIP == "" && next.Spec.ClusterIP != "" // the second family's address follows
	write := func() error {
		update := func() error { return w.Client.Update(ctx, next) }
		if next.Spec.ClusterIP == live.Spec.ClusterIP && slices.Equal(next.Spec.ClusterIPs, live.Spec.ClusterIPs) {
			return update()
		}
		return w.writeService(next, update)
	}
	if second {
		if err := write(); err != nil {
			return nil, false, err
		}
		s, _, err = w.RepairService(ctx, next, desired)
		return s, true, err
	}
	repaired, err = w.update(ctx, live, desired, next,
		func() (client.Object, bool) { return RepairedService(next, desired) }, write)
	return next, repaired, err
}

// EnsureSlice makes a slice as desired. live is the one that is known, nil for none; denials by
// admission are counted by key.
func (w *Writer) EnsureSlice(ctx context.Context, key string, live, desired *discoveryv1.EndpointSlice) error {
	if live == nil {
		err := w.Client.Create(ctx, desired)
		if !apierrors.IsAlreadyExists(err) {
			return w.writtenSlice(key, desired, err)
		}
		live = &discoveryv1.EndpointSlice{} // the cache has only those with our labels
		switch read := w.Live.Get(ctx, client.ObjectKeyFromObject(desired), live); {
		case apierrors.IsNotFound(read):
			return err
		case read != nil:
			return fmt.Errorf("reading EndpointSlice %s: %w", client.ObjectKeyFromObject(desired), read)
		}
	}
	if !w.Installation.Owns(live) {
		return ErrForeign
	}
	next, different := repairedSlice(live, desired)
	if !different {
		w.changes.Delete(describe(live))
		return nil
	}
	_, err := w.update(ctx, live, desired, next, func() (client.Object, bool) { return repairedSlice(next, desired) },
		func() error { return w.writtenSlice(key, desired, w.Client.Update(ctx, next)) })
	return err
}

// DeleteSlice deletes a slice; denials by admission are counted by key.
func (w *Writer) DeleteSlice(ctx context.Context, key string, live *discoveryv1.EndpointSlice) error {
	if !w.Installation.Owns(live) {
		return ErrForeign
	}
	return w.writtenSlice(key, live, Delete(ctx, w.Client, live))
}

// writtenSlice returns the result of a write of a slice. One that admission denied is repeated at
// once, for a second: the API server may not have seen a new forwarder in Kubernetes' own slices
// yet.
func (w *Writer) writtenSlice(key string, s *discoveryv1.EndpointSlice, err error) error {
	if err == nil {
		w.Forget(key)
		return nil
	}
	err = fmt.Errorf("writing EndpointSlice %s: %w", client.ObjectKeyFromObject(s), err)
	if Reason(err) == v1alpha1.ReasonAdmissionDenied && w.again(key) {
		return errors.Join(ErrRepeat, err)
	}
	return err
}

// Delete deletes the object in this version, if it is there.
func Delete(ctx context.Context, c client.Client, o client.Object) error {
	uid, version := o.GetUID(), o.GetResourceVersion()
	return client.IgnoreNotFound(c.Delete(ctx, o, client.Preconditions{UID: &uid, ResourceVersion: &version},
		client.PropagationPolicy(metav1.DeletePropagationBackground)))
}

// liveTimeout bounds the question whether an object is gone.
const liveTimeout = 10 * time.Second

// IsGone reports whether the API server says that it does not have an object, or deletes it.
func IsGone(ctx context.Context, live client.Reader, kind schema.GroupVersionKind, name types.NamespacedName) bool {
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(kind)
	err := live.Get(ctx, name, o)
	return apierrors.IsNotFound(err) || err == nil && o.DeletionTimestamp != nil
}

// ProblemOf classifies the error of a write; nil for none. A write that lost against a concurrent
// one, was based on a stale cache, or has to be repeated at once for another reason, is quiet.
func ProblemOf(err error) *status.Problem {
	var change *admissionChange
	switch {
	case err == nil:
		return nil
	case errors.As(err, &change):
		return change.problem()
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), errors.Is(err, ErrRepeat):
		return &status.Problem{Quiet: true, RetryAfter: status.ConflictRetry, Err: err}
	}
	if reason := Reason(err); reason != "" {
		return &status.Problem{Reason: reason, Message: err.Error(), RetryAfter: RefusalRetry}
	}
	return &status.Problem{Reason: v1alpha1.ReasonAPIError, Message: err.Error(), Err: err}
}

// Reason returns the reason of the API server's refusal, or "" for other errors. Quotas, admission
// and address exhaustion have no status reason of their own: only the message identifies them.
func Reason(err error) string {
	text := err.Error()
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return v1alpha1.ReasonNamespaceTerminating
	case apierrors.IsNotFound(err):
		return v1alpha1.ReasonNamespaceNotFound
	case strings.Contains(text, "exceeded quota"):
		return v1alpha1.ReasonQuotaExceeded
	case strings.Contains(text, "denied the request"), strings.Contains(text, "denied request"):
		return v1alpha1.ReasonAdmissionDenied
	case strings.Contains(text, "range is full"):
		return v1alpha1.ReasonClusterIPExhausted
	case apierrors.IsForbidden(err):
		return v1alpha1.ReasonForbidden
	case apierrors.IsInvalid(err):
		return v1alpha1.ReasonInvalidEndpoint
	}
	return ""
}

// RepairedService returns live with the desired content, and whether that is a change. The spec is
// replaced except for the addresses that the cluster assigned; other labels and annotations stay. Of
// two desired addresses a Service without one gets the first, and one that has that the second.
func RepairedService(live, desired *corev1.Service) (*corev1.Service, bool) {
	next := live.DeepCopy()
	mergeMetadata(next, desired)
	next.Spec = *desired.Spec.DeepCopy()
	if desired.Spec.Type == corev1.ServiceTypeClusterIP && live.Spec.ClusterIP != "" &&
		live.Spec.ClusterIP != corev1.ClusterIPNone {
		next.Spec.ClusterIP, next.Spec.ClusterIPs, next.Spec.IPFamilies = live.Spec.ClusterIP, live.Spec.ClusterIPs,
			live.Spec.IPFamilies
		if previous := desired.Spec.ClusterIPs; len(previous) > len(live.Spec.ClusterIPs) &&
			previous[0] == live.Spec.ClusterIP {
			next.Spec.ClusterIPs, next.Spec.IPFamilies = previous, ipFamilies(previous) // live lost the second family
		}
	} else {
		requestOneAddress(&next.Spec)
	}
	return next, !equality.Semantic.DeepEqual(live, next)
}

// requestOneAddress reduces the addresses that a spec requests to the first. The API server frees
// those of a deleted Service one after another, and of two that are requested it keeps the free one
// allocated for a minute, to no Service, when the other is not free.
func requestOneAddress(spec *corev1.ServiceSpec) {
	if len(spec.ClusterIPs) > 1 {
		spec.ClusterIPs, spec.IPFamilyPolicy = spec.ClusterIPs[:1], new(corev1.IPFamilyPolicySingleStack)
	}
}

func ipFamilies(addresses []string) []corev1.IPFamily {
	var all []corev1.IPFamily
	for _, a := range addresses {
		family := corev1.IPv4Protocol
		if utilnet.IsIPv6String(a) {
			family = corev1.IPv6Protocol
		}
		all = append(all, family)
	}
	return all
}

// repairedSlice returns live with the desired content, and whether that is a change. Other labels
// and annotations stay, but none that excludes the slice from kube-proxy or marks a standby.
func repairedSlice(live, desired *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, bool) {
	next := live.DeepCopy()
	delete(next.Annotations, installation.AnnotationStandby)
	mergeMetadata(next, desired)
	delete(next.Labels, corev1.IsHeadlessService)
	next.Endpoints, next.Ports = desired.Endpoints, desired.Ports
	return next, !equality.Semantic.DeepEqual(live, next)
}

// mergeMetadata sets the owners, labels and annotations of desired in o. Other labels and
// annotations stay, but for those that an earlier desired object added.
func mergeMetadata(o, desired metav1.Object) {
	installation.RemoveAdded(o)
	merge := func(theirs, ours map[string]string) map[string]string {
		all := map[string]string{}
		maps.Copy(all, theirs)
		maps.Copy(all, ours)
		return all
	}
	o.SetOwnerReferences(desired.GetOwnerReferences())
	o.SetLabels(merge(o.GetLabels(), desired.GetLabels()))
	o.SetAnnotations(merge(o.GetAnnotations(), desired.GetAnnotations()))
}
