// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-dev/fairlead/internal/operator/options"
)

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
