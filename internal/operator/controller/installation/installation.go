// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package installation identifies the objects of an installation: labels, annotations and owner
// references to the chart's anchors, from namespace and release. endpointsync, boundendpoint and
// registration use it.
//
// An object is ours if it carries the installation's label, a hash of namespace and release so that
// a re-installation adopts what an earlier one left, and an annotation that equals its own
// namespace and name, so that a copy is not ours. A copy whose annotation was edited, as with sed,
// still has the original's checksum. An object that has lost label or annotation is identified only
// by its UID, which internal/operator/controller/boundendpoint records: nothing else distinguishes
// it from a copy. One that has lost both is foreign.
package installation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/options"
)

// Labels and annotations of the objects that the operator makes.
const (
	// Label holds Installation.ID.
	Label = "bindings.fairlead.dev/installation"
	// AnnotationPlace holds the object's own "<namespace>/<name>".
	AnnotationPlace = "bindings.fairlead.dev/place"
	// AnnotationChecksum holds a hash of Label and AnnotationPlace. Objects of earlier versions
	// lack it.
	AnnotationChecksum = "bindings.fairlead.dev/checksum"
	// AnnotationInstallation holds "<namespace>/<release>", for people and for conflict messages of
	// other installations.
	AnnotationInstallation = "bindings.fairlead.dev/installed-by"
	// AnnotationStandby marks an EndpointSlice of a source cluster that cannot serve while another
	// one can: its endpoints are not ready.
	AnnotationStandby = "bindings.fairlead.dev/standby"
	// AnnotationHostname holds, on a Service or a NetworkPolicy, the hostname it belongs to.
	AnnotationHostname = "bindings.fairlead.dev/hostname"
	// AnnotationProjectionID holds, on an upstream Service, the projection id, which may differ
	// from its name.
	AnnotationProjectionID = "bindings.fairlead.dev/projection-id"

	// SliceManager is the value of endpointslice.kubernetes.io/managed-by on our EndpointSlices:
	// Kubernetes' own controllers leave them alone. Their slices of our Services have our Label,
	// too.
	SliceManager = managedBy

	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "fairlead-operator"
)

// Installation is one release of the operator in one namespace.
type Installation struct {
	Namespace string
	Release   string
}

// Check checks the flags that select the installation.
func (i Installation) Check(c *options.Checker) {
	c.Name("--namespace", i.Namespace, validation.IsDNS1123Label)
	c.Name("--release", i.Release, validation.IsDNS1123Subdomain)
}

// String returns "<namespace>/<release>".
func (i Installation) String() string { return i.Namespace + "/" + i.Release }

// Operator reads the installation's KubernetesOperator from the cache; it has no UID while there is
// none.
func (i Installation) Operator(ctx context.Context, cached client.Reader) *v1alpha1.KubernetesOperator {
	object := &v1alpha1.KubernetesOperator{}
	object.Namespace, object.Name = i.Namespace, i.Release
	_ = cached.Get(ctx, client.ObjectKeyFromObject(object), object) // without it an event lacks the UID
	return object
}

// Selector selects the objects with our label.
func (i Installation) Selector() labels.Set { return labels.Set{Label: i.ID()} }

// SliceSelector selects our EndpointSlices.
func (i Installation) SliceSelector() labels.Set {
	return labels.Set{Label: i.ID(), discoveryv1.LabelManagedBy: SliceManager}
}

// ID returns the value of Label: 32 hex digits.
func (i Installation) ID() string {
	sum := sha256.Sum256([]byte(i.String()))
	return hex.EncodeToString(sum[:16])
}

// Owns reports whether the object is ours.
func (i Installation) Owns(o metav1.Object) bool {
	return o.GetLabels()[Label] == i.ID() && o.GetAnnotations()[AnnotationPlace] == namespacedName(o) && !i.Copied(o)
}

// Copied reports whether the object's marks were made for another object, according to its
// checksum.
func (i Installation) Copied(o metav1.Object) bool {
	sum := o.GetAnnotations()[AnnotationChecksum]
	return sum != "" && sum != i.checksum(o)
}

// Marked reports whether the object carries at least one mark of ours: the label, or its place
// together with our name. It is no proof, as a copy may carry one.
func (i Installation) Marked(o metav1.Object) bool {
	return o.GetLabels()[Label] == i.ID() || o.GetAnnotations()[AnnotationPlace] == namespacedName(o) &&
		o.GetAnnotations()[AnnotationInstallation] == i.String()
}

// Mark marks the object as ours. Other labels and annotations stay.
func (i Installation) Mark(o metav1.Object) {
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	labels[Label] = i.ID()
	labels[managedByLabel] = managedBy
	annotations[AnnotationPlace] = namespacedName(o)
	annotations[AnnotationChecksum] = i.checksum(o)
	annotations[AnnotationInstallation] = i.String()
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
}

func (i Installation) checksum(o metav1.Object) string {
	sum := sha256.Sum256([]byte(i.String() + " " + namespacedName(o)))
	return hex.EncodeToString(sum[:8])
}

func namespacedName(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

// Roles are names of what the chart made for an installation, each of a role and of its binding.
type Roles struct {
	// ClusterRole and Role are the anchors. With listed namespaces, ClusterRole is the name of a
	// Role in each of them.
	ClusterRole, Role string
	// Rights are the manager's ClusterRole and ClusterRoleBinding, or with listed namespaces a Role
	// and a RoleBinding in each of them; empty if it has neither. They are deleted with the
	// namespace, as the anchor is: a binding that outlives its ServiceAccount would give its rights
	// to a new ServiceAccount of that name.
	Rights string
	// ForwarderRights is the same for the forwarders; empty if they have no rights in the cluster.
	ForwarderRights string
	// ExporterRights are further ClusterRoles, each with a ClusterRoleBinding of its name or none,
	// that are deleted with the namespace. They may be missing, or not to be read: the manager
	// works without them.
	ExporterRights []string
}

// Check checks the flags of the names.
func (r *Roles) Check(c *options.Checker) {
	c.Name("--anchor-cluster-role", r.ClusterRole, content.IsPathSegmentName)
	c.Name("--anchor-role", r.Role, content.IsPathSegmentName)
	if r.ForwarderRights != "" {
		c.Name("--forwarder-cluster-role", r.ForwarderRights, content.IsPathSegmentName)
	}
	for _, name := range r.ExporterRights {
		c.Name("--exporter-cluster-roles", name, content.IsPathSegmentName)
	}
	if r.Rights != "" {
		c.Name("--cluster-role", r.Rights, content.IsPathSegmentName)
	}
}

// ForwarderPods is how the forwarders' pods are found.
type ForwarderPods struct {
	// ForwarderName and ForwarderInstance are the values of app.kubernetes.io/name and /instance on
	// the pods. Those of the managers have the same instance.
	ForwarderName, ForwarderInstance string
	// ForwarderService is the name of the Service whose EndpointSlices have the pods' addresses;
	// empty: no slices are read or written.
	ForwarderService string
}

// PodLabels returns the labels that select the pods.
func (f ForwarderPods) PodLabels() labels.Set {
	return labels.Set{"app.kubernetes.io/name": f.ForwarderName, "app.kubernetes.io/instance": f.ForwarderInstance}
}

// Check checks the flags of the pods.
func (f ForwarderPods) Check(c *options.Checker) {
	c.Label("--forwarder-name", f.ForwarderName)
	c.Label("--forwarder-instance", f.ForwarderInstance)
	if f.ForwarderService != "" {
		c.Name("--forwarder-service", f.ForwarderService, validation.IsDNS1123Label)
	}
}
