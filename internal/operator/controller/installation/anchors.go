// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=fairlead-operator-anchor,verbs=get;patch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,namespace=fairlead,resources=roles,resourceNames=fairlead-operator-anchor,verbs=get
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles;clusterrolebindings,resourceNames=fairlead-operator-manager;fairlead-operator-forwarder,verbs=get;patch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get

// Owners are the owner references of the operator's objects. The anchors are rule-less objects of
// the chart: when the release is uninstalled, the garbage collector deletes all that they own, even
// if the manager does not run, so that no finalizer or hook is needed.
type Owners struct {
	// the ClusterRole that owns target Services in any namespace; empty if namespaces are listed
	Cluster metav1.OwnerReference
	// the Role in the operator's namespace that owns upstream Services, BoundEndpoints and the
	// KubernetesOperator
	Local metav1.OwnerReference
}

// Anchors reads the chart's anchors. It is safe for concurrent use.
type Anchors struct {
	Installation Installation
	// ClusterRole and Role are the names of the anchors.
	ClusterRole, Role string
	// Rights is the name of the manager's ClusterRole and ClusterRoleBinding; empty if it has
	// neither. They are deleted with the namespace, as the anchor is: a binding that outlives its
	// ServiceAccount would give its rights to a new ServiceAccount of that name.
	Rights string
	// ForwarderRights is the same for the forwarders; empty if they have no rights in the cluster.
	ForwarderRights string
	// ExporterRights are further ClusterRoles, each with a ClusterRoleBinding of its name or none,
	// that are deleted with the namespace. They may be missing, or not to be read: the manager works
	// without them.
	ExporterRights []string
	// Client reads without a cache: the rights are for single names.
	Client client.Client
	// Listed reports that there is no ClusterRole: a Role of that name in each listed namespace
	// owns the target Services there.
	Listed bool

	mu     sync.Mutex // guards reading, and readAt
	cached atomic.Pointer[Owners]
	readAt time.Time

	targetMu sync.Mutex
	targets  map[string]targetOwner
}

type targetOwner struct {
	metav1.OwnerReference
	readAt time.Time
}

// refreshAfter is how long the anchors' UIDs are cached. A re-created anchor has a new UID, and
// objects that refer to the old one are garbage collected.
const refreshAfter = time.Minute

// Owners returns the owner references. Reading the anchors also sets the operator's Namespace as
// the ClusterRole's owner, so that deleting the namespace cleans up too. The result is cached, also
// while the anchors cannot be read, but not if one of them is gone: objects that refer to it would
// be garbage collected at once.
func (a *Anchors) Owners(ctx context.Context) (Owners, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	cached := a.cached.Load()
	if cached != nil && time.Since(a.readAt) < refreshAfter {
		return *cached, nil
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
	return *cached, nil
}

// Known returns the cached result of Owners. It does not block.
func (a *Anchors) Known() (owners Owners, known bool) {
	if cached := a.cached.Load(); cached != nil {
		return *cached, true
	}
	return Owners{}, false
}

// Invalidate drops what is cached for the namespace, because an owned object is gone and its anchor
// may be too.
func (a *Anchors) Invalidate(namespace string) {
	a.mu.Lock()
	a.readAt = time.Time{}
	a.mu.Unlock()
	a.targetMu.Lock()
	defer a.targetMu.Unlock()
	delete(a.targets, namespace)
}

// TargetOwner returns the owner reference for target Services in the namespace. Errors are the API
// server's.
func (a *Anchors) TargetOwner(ctx context.Context, namespace string) (metav1.OwnerReference, error) {
	if !a.Listed {
		owners, err := a.Owners(ctx)
		return owners.Cluster, err
	}
	a.targetMu.Lock()
	cached, ok := a.targets[namespace]
	a.targetMu.Unlock()
	if ok && time.Since(cached.readAt) < refreshAfter {
		return cached.OwnerReference, nil
	}
	var role rbacv1.Role // read without the lock, so that namespaces do not block each other
	if err := a.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: a.ClusterRole}, &role); err != nil {
		return metav1.OwnerReference{}, fmt.Errorf("reading anchor Role %s/%s: %w", namespace, a.ClusterRole, err)
	}
	owner := targetOwner{roleReference(&role), time.Now()}
	a.targetMu.Lock()
	defer a.targetMu.Unlock()
	if a.targets == nil {
		a.targets = map[string]targetOwner{}
	}
	a.targets[namespace] = owner
	return owner.OwnerReference, nil
}

func roleReference(role *rbacv1.Role) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role", Name: role.Name,
		UID: role.UID}
}

func (a *Anchors) read(ctx context.Context) (Owners, error) {
	var role rbacv1.Role
	if err := a.Client.Get(ctx, client.ObjectKey{Namespace: a.Installation.Namespace, Name: a.Role},
		&role); err != nil {
		return Owners{}, fmt.Errorf("reading anchor Role %s/%s: %w", a.Installation.Namespace, a.Role, err)
	}
	if a.Listed {
		return Owners{Local: roleReference(&role)}, nil
	}
	var clusterRole rbacv1.ClusterRole
	if err := a.Client.Get(ctx, client.ObjectKey{Name: a.ClusterRole}, &clusterRole); err != nil {
		return Owners{}, fmt.Errorf("reading anchor ClusterRole %s: %w", a.ClusterRole, err)
	}
	if err := a.setNamespaceOwner(ctx, &clusterRole); err != nil {
		return Owners{}, err
	}
	return Owners{
		Cluster: metav1.OwnerReference{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole",
			Name: clusterRole.Name, UID: clusterRole.UID},
		Local: roleReference(&role),
	}, nil
}

// setNamespaceOwner sets the operator's Namespace as the owner of the anchor and of all
// cluster-wide rights.
func (a *Anchors) setNamespaceOwner(ctx context.Context, anchor *rbacv1.ClusterRole) error {
	var ns corev1.Namespace
	if err := a.Client.Get(ctx, client.ObjectKey{Name: a.Installation.Namespace}, &ns); err != nil {
		return fmt.Errorf("reading namespace %s: %w", a.Installation.Namespace, err)
	}
	rights, err := a.clusterRights(ctx)
	if err != nil {
		return err
	}
	objects := append([]client.Object{anchor}, rights...)
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: ns.Name, UID: ns.UID}
	for _, o := range objects {
		if have := o.GetOwnerReferences(); len(have) == 1 && have[0] == owner {
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
