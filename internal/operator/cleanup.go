// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/options"
)

const (
	cleanupPage    = 500             // objects of a list request
	cleanupWorkers = 16              // deletions at a time
	progressEvery  = 2 * time.Second // interval of progress messages
)

// CleanupOptions select the installation whose objects are deleted. Flags are named as in
// `fairlead-operator cleanup --help`.
type CleanupOptions struct {
	installation.Installation
	// DryRun only lists what would be deleted.
	DryRun bool
	// Force deletes even while a manager holds the Lease.
	Force bool

	// Kubernetes configures the client, with the rights of the caller.
	Kubernetes *rest.Config
	Out        io.Writer // progress and result
}

// Cleanup deletes what the manager of an installation made, anywhere in the cluster, whether the
// release still exists or not: first what other users see. It deletes only objects that are ours by
// label and by place, each in the version that was read: one that has changed meanwhile is checked
// again. It returns an error if something could not be deleted; another run continues.
func Cleanup(ctx context.Context, o CleanupOptions) error {
	var c options.Checker
	o.Installation.Check(&c)
	if err := c.Err(); err != nil {
		return err
	}
	objects, err := metadata.NewForConfig(clientConfig(o.Kubernetes))
	if err != nil {
		return fmt.Errorf("preparing the client: %w", err)
	}
	w := &cleaner{CleanupOptions: o, objects: objects}
	if err := w.checkNoManager(ctx); err != nil {
		return err
	}
	var all []ownedObject
	for _, kind := range cleanupKinds(o.Namespace) {
		found, err := w.list(ctx, kind)
		if err != nil {
			return err
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		return w.reportNothingFound(ctx)
	}
	if o.DryRun {
		for _, r := range all {
			w.printf("would delete %s", r)
		}
		w.printf("%d objects of %s would be deleted", len(all), w.Installation)
		return nil
	}
	return w.delete(ctx, all)
}

// cleanupKind is a kind of objects that the manager makes.
type cleanupKind struct {
	schema.GroupVersionResource
	name      string
	namespace string     // empty: all
	selector  labels.Set // of its objects that have our label
}

func cleanupKinds(namespace string) []cleanupKind {
	bindings := v1alpha1.GroupVersion.WithResource
	return []cleanupKind{
		{importGroupVersion.WithResource(mcsv1beta1.ServiceImportPluralName), "ServiceImport", "", nil},
		{corev1.SchemeGroupVersion.WithResource("services"), "Service", "", nil},
		{discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), "EndpointSlice", "",
			labels.Set{discoveryv1.LabelManagedBy: installation.SliceManager}},
		{networkingv1.SchemeGroupVersion.WithResource("networkpolicies"), "NetworkPolicy", namespace, nil},
		{bindings("boundendpoints"), "BoundEndpoint", namespace, nil},
		{bindings("kubernetesoperators"), "KubernetesOperator", namespace, nil},
		{coordinationv1.SchemeGroupVersion.WithResource("leases"), "Lease", namespace, nil},
	}
}

// ownedObject is an object to delete.
type ownedObject struct {
	kind cleanupKind
	metav1.PartialObjectMetadata
}

// String returns the kind and the name, such as "Service demo/web".
func (r ownedObject) String() string { return r.kind.name + " " + r.Namespace + "/" + r.Name }

type cleaner struct {
	CleanupOptions
	objects metadata.Interface
}

func (w *cleaner) printf(format string, args ...any) { _, _ = fmt.Fprintf(w.Out, format+"\n", args...) }

// checkNoManager returns an error while a manager of this installation works: it would re-create
// what is deleted.
func (w *cleaner) checkNoManager(ctx context.Context) error {
	client, err := coordination.NewForConfig(clientConfig(w.Kubernetes))
	if err != nil {
		return fmt.Errorf("preparing the client for the Lease: %w", err)
	}
	lease, err := client.Leases(w.Namespace).Get(ctx, leaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Lease %s/%s: %w", w.Namespace, leaseName, err)
	}
	holder, by := leaseHolder(lease, time.Now()), lease.Annotations[installation.AnnotationInstallation]
	if holder == "" || by != "" && by != w.Installation.String() {
		return nil
	}
	if w.Force || w.DryRun {
		w.printf("note: a manager still runs (%s holds the Lease) and re-creates what is deleted", holder)
		return nil
	}
	return fmt.Errorf(
		"a manager of %s still runs (%s holds Lease %s/%s) and would re-create what is deleted: stop it first, "+
			"with `helm uninstall %s --namespace %s` or with its "+
			"Deployment scaled to 0, and try again after 15 s; or give --force", w.Installation, holder, w.Namespace,
		leaseName, w.Release, w.Namespace)
}

// leaseHolder returns the holder of a Lease that has not expired. Clocks may differ, so a Lease
// lasts maxLeaseDuration here.
func leaseHolder(lease *coordinationv1.Lease, now time.Time) string {
	s := lease.Spec
	if s.HolderIdentity == nil || s.RenewTime == nil || now.After(s.RenewTime.Add(maxLeaseDuration)) {
		return ""
	}
	return *s.HolderIdentity
}

// list returns the objects of one kind that are ours. A kind that the cluster does not know has
// none.
func (w *cleaner) list(ctx context.Context, kind cleanupKind) ([]ownedObject, error) {
	var found []ownedObject
	selector := labels.Merge(kind.selector, labels.Set{installation.Label: w.Installation.ID()})
	opts := metav1.ListOptions{LabelSelector: selector.String(), Limit: cleanupPage}
	for {
		page, err := w.objects.Resource(kind.GroupVersionResource).Namespace(kind.namespace).List(ctx, opts)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", kind.Resource, err)
		}
		for i := range page.Items {
			o := &page.Items[i]
			switch {
			case w.Installation.Owns(o):
				found = append(found, ownedObject{kind, *o})
			default:
				w.printf("left alone: %s %s/%s has our label but is a copy made by another client", kind.name,
					o.Namespace, o.Name)
			}
		}
		if opts.Continue = page.Continue; opts.Continue == "" {
			return found, nil
		}
	}
}

// reportNothingFound reports that there is nothing to delete, and which other installations have
// Services: the names may be wrong.
func (w *cleaner) reportNothingFound(ctx context.Context) error {
	w.printf("nothing of %s is left in the cluster", w.Installation)
	page, err := w.objects.Resource(corev1.SchemeGroupVersion.WithResource("services")).
		List(ctx, metav1.ListOptions{LabelSelector: installation.Label, Limit: cleanupPage})
	if err != nil {
		return fmt.Errorf("listing Services of other installations: %w", err)
	}
	var others []string
	for _, o := range page.Items {
		others = append(others, o.Annotations[installation.AnnotationInstallation])
	}
	slices.Sort(others)
	others = slices.DeleteFunc(slices.Compact(others), func(name string) bool {
		return name == "" || name == w.Installation.String()
	})
	if len(others) > 0 {
		w.printf("there are Services of: %s (namespace/release)", strings.Join(others, ", "))
	}
	return nil
}

// delete deletes the objects in their order, several at a time, and reports its progress.
func (w *cleaner) delete(ctx context.Context, all []ownedObject) error {
	var next, done atomic.Int64
	var mu sync.Mutex
	var failures []error
	var workers sync.WaitGroup
	for range cleanupWorkers {
		workers.Go(func() {
			for ctx.Err() == nil {
				i := next.Add(1) - 1
				if i >= int64(len(all)) {
					return
				}
				if err := w.deleteOne(ctx, all[i]); err != nil {
					mu.Lock()
					failures = append(failures, err)
					mu.Unlock()
					continue
				}
				done.Add(1)
			}
		})
	}
	ended := make(chan struct{})
	go func() { workers.Wait(); close(ended) }()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.printf("deleted %d of %d", done.Load(), len(all))
			continue
		case <-ended:
		}
		break
	}
	w.printf("deleted %d of %d objects of %s", done.Load(), len(all), w.Installation)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("interrupted, run it again to go on: %w", err)
	}
	const maxShown = 10 // one cause may give thousands
	if len(failures) > maxShown {
		failures = append(failures[:maxShown], fmt.Errorf("and %d more", len(failures)-maxShown))
	}
	return errors.Join(failures...)
}

// deleteOne deletes the object that was read. One that changed is read again, and left alone if it
// is no longer ours.
func (w *cleaner) deleteOne(ctx context.Context, r ownedObject) error {
	objects := w.objects.Resource(r.kind.GroupVersionResource).Namespace(r.Namespace)
	for {
		err := objects.Delete(ctx, r.Name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &r.UID,
				ResourceVersion: &r.ResourceVersion}})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if !apierrors.IsConflict(err) {
			if err != nil {
				return fmt.Errorf("deleting %s: %w", r, err)
			}
			return nil
		}
		now, err := objects.Get(ctx, r.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return fmt.Errorf("reading %s again: %w", r, err)
		case now.UID != r.UID || !w.Installation.Owns(now):
			w.printf("left alone: %s is no longer ours", r)
			return nil
		}
		r.PartialObjectMetadata = *now
	}
}
