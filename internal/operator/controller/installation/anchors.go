// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles;clusterrolebindings,resourceNames=fairlead-operator-anchor,verbs=get;patch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,namespace=fairlead,resources=roles;rolebindings,resourceNames=fairlead-operator-anchor,verbs=get
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles;clusterrolebindings,resourceNames=fairlead-operator-manager;fairlead-operator-forwarder,verbs=get;patch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get

// Owners are the owner references of the operator's objects. The anchors are objects of the chart:
// a Role without rules, and its binding without subjects. When the release is uninstalled, the
// garbage collector deletes all that both own, even if the manager does not run, so that no
// finalizer or hook is needed. While one of the two exists, it deletes nothing: an anchor that is
// deleted and made again, as `kubectl replace --force` does, costs no Service. The collector
// removes the reference to the anchor that is gone, and the manager adds the one to its successor.
type Owners struct {
	// Cluster owns target Services in any namespace: ClusterRole and ClusterRoleBinding. It is
	// empty if namespaces are listed.
	Cluster []metav1.OwnerReference
	// Local owns upstream Services, BoundEndpoints, the KubernetesOperator and what else is in the
	// operator's namespace: Role and RoleBinding.
	Local []metav1.OwnerReference
}

// clone returns owners of their own: a client decodes what it wrote into the same memory.
func (o Owners) clone() Owners {
	return Owners{Cluster: slices.Clone(o.Cluster), Local: slices.Clone(o.Local)}
}

// recheckAfter is the delay before the anchors of an object that has one owner are read again.
const recheckAfter = 30 * time.Second

// RecheckAfter returns when to read the anchors of an object with these owners again: one of the
// two is missing if it is not 0.
func RecheckAfter(owners []metav1.OwnerReference) time.Duration {
	if len(owners) < 2 {
		return recheckAfter
	}
	return 0
}

// Anchors reads the chart's anchors. It is safe for concurrent use.
type Anchors struct {
	Installation Installation
	Roles
	// Client reads without a cache: the rights are for single names.
	Client client.Client
	// Listed reports that there is no ClusterRole: a Role of that name in each listed namespace
	// owns the target Services there.
	Listed bool

	mu     sync.Mutex // guards reading, and readAt
	cached atomic.Pointer[Owners]
	readAt time.Time

	ownedAt  time.Time  // ownedAt is when the namespace was last made the owner.
	targetMu sync.Mutex // targetMu guards targets.
	targets  map[string]targetOwners
}

type targetOwners struct {
	owners []metav1.OwnerReference
	readAt time.Time
}

const (
	// refreshAfter is how long the anchors' UIDs are cached. A re-created anchor has a new UID; the
	// collector removes references to the old one as often as they are written.
	refreshAfter = 2 * time.Second
	// ownAfter is how often the namespace is made the owner of anchors and rights.
	ownAfter = time.Minute
)

// Owners returns the owner references. Reading the anchors also sets the operator's Namespace as
// the owner of those of the cluster, so that deleting the namespace cleans up too. The result is
// cached, also while the anchors cannot be read, but not if both are gone: objects that refer to
// them would be garbage collected at once.
func (a *Anchors) Owners(ctx context.Context) (Owners, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	cached := a.cached.Load()
	if cached != nil && time.Since(a.readAt) < refreshAfter {
		return cached.clone(), nil
	}
	owners, err := a.read(ctx)
	if apierrors.IsNotFound(err) {
		cached = nil
	}
	if err == nil {
		cached = &owners
	}
	a.cached.Store(cached)
	if cached == nil {
		return Owners{}, err
	}
	a.readAt = time.Now()
	return cached.clone(), nil
}

// Known returns the cached result of Owners. It does not block.
func (a *Anchors) Known() (owners Owners, known bool) {
	if cached := a.cached.Load(); cached != nil {
		return cached.clone(), true
	}
	return Owners{}, false
}

// TargetOwners returns the owner references for target Services in the namespace. Errors are the
// API server's.
func (a *Anchors) TargetOwners(ctx context.Context, namespace string) ([]metav1.OwnerReference, error) {
	if !a.Listed {
		owners, err := a.Owners(ctx)
		return owners.Cluster, err
	}
	a.targetMu.Lock()
	cached, ok := a.targets[namespace]
	a.targetMu.Unlock()
	if ok && time.Since(cached.readAt) < refreshAfter {
		return slices.Clone(cached.owners), nil
	}
	// read without the lock, so that namespaces do not block each other
	owners, err := a.references(ctx, client.ObjectKey{Namespace: namespace, Name: a.ClusterRole}, &rbacv1.Role{},
		&rbacv1.RoleBinding{})
	if err != nil {
		return nil, err
	}
	a.targetMu.Lock()
	defer a.targetMu.Unlock()
	if a.targets == nil {
		a.targets = map[string]targetOwners{}
	}
	a.targets[namespace] = targetOwners{owners, time.Now()}
	return slices.Clone(owners), nil
}

// references reads anchors of one name and returns the owner references of those that exist. The
// error is the first one's if there is none. One that may not be read counts as missing: the owners
// of listed namespaces may have made the Roles of an earlier version.
func (a *Anchors) references(
	ctx context.Context, key client.ObjectKey, anchors ...client.Object,
) ([]metav1.OwnerReference, error) {
	var owners []metav1.OwnerReference
	var missing error
	for _, o := range anchors {
		kind := reflect.TypeOf(o).Elem().Name()
		switch err := a.Client.Get(ctx, key, o); {
		case err == nil:
			owners = append(owners, metav1.OwnerReference{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind,
				Name: o.GetName(), UID: o.GetUID()})
		case !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err):
			return nil, fmt.Errorf("reading anchor %s %s: %w", kind, key, err)
		case missing == nil:
			missing = fmt.Errorf("reading anchor %s %s: %w", kind, key, err)
		}
	}
	if len(owners) == 0 {
		return nil, missing
	}
	return owners, nil
}

func (a *Anchors) read(ctx context.Context) (Owners, error) {
	local, err := a.references(ctx, client.ObjectKey{Namespace: a.Installation.Namespace, Name: a.Role},
		&rbacv1.Role{}, &rbacv1.RoleBinding{})
	if err != nil || a.Listed {
		return Owners{Local: local}, err
	}
	anchors := []client.Object{&rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{}}
	cluster, err := a.references(ctx, client.ObjectKey{Name: a.ClusterRole}, anchors...)
	if err != nil {
		return Owners{}, err
	}
	owned := func(o client.Object) bool { return o.GetUID() == "" || len(o.GetOwnerReferences()) > 0 }
	if time.Since(a.ownedAt) >= ownAfter || !owned(anchors[0]) || !owned(anchors[1]) {
		if err := a.setNamespaceOwner(ctx, anchors); err != nil {
			return Owners{}, err
		}
		a.ownedAt = time.Now()
	}
	return Owners{Cluster: cluster, Local: local}, nil
}

// setNamespaceOwner sets the operator's Namespace as the owner of the anchors that exist and of all
// cluster-wide rights.
func (a *Anchors) setNamespaceOwner(ctx context.Context, anchors []client.Object) error {
	var ns corev1.Namespace
	if err := a.Client.Get(ctx, client.ObjectKey{Name: a.Installation.Namespace}, &ns); err != nil {
		return fmt.Errorf("reading namespace %s: %w", a.Installation.Namespace, err)
	}
	rights, err := a.clusterRights(ctx)
	if err != nil {
		return err
	}
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: ns.Name, UID: ns.UID}
	for _, o := range append(anchors, rights...) {
		if have := o.GetOwnerReferences(); o.GetUID() == "" || len(have) == 1 && have[0] == owner {
			continue
		}
		before, _ := o.DeepCopyObject().(client.Object)
		o.SetOwnerReferences([]metav1.OwnerReference{owner})
		if err := a.Client.Patch(ctx, o, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("making %T %s owned by namespace %s: %w", o, o.GetName(), ns.Name, err)
		}
	}
	return nil
}

// clusterRights returns the ClusterRoles and ClusterRoleBindings that are deleted with the
// namespace.
func (a *Anchors) clusterRights(ctx context.Context) ([]client.Object, error) {
	var objects []client.Object
	for i, name := range append([]string{a.Rights, a.ForwarderRights}, a.ExporterRights...) {
		if name == "" {
			continue
		}
		for _, o := range []client.Object{&rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{}} {
			switch err := a.Client.Get(ctx, client.ObjectKey{Name: name}, o); {
			case err == nil:
				objects = append(objects, o)
			case i >= 2 && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err)):
			default:
				return nil, fmt.Errorf("reading %T %s: %w", o, name, err)
			}
		}
	}
	return objects, nil
}
