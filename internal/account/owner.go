// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"fmt"
	"strings"
)

// Values of Owner.Kind.
const (
	KindAgentEndpoint = "AgentEndpoint" // owns endpoints of type agent
	KindCloudEndpoint = "CloudEndpoint" // owns endpoints of type cloud
	KindServiceExport = "ServiceExport" // owns endpoints of BindingClusterset
)

// Owner is the object in a Kubernetes cluster that an endpoint is for. Cluster, Kind, Namespace and
// Name identify it; an object that is deleted and made again has another UID, and is the same
// owner. The endpoints of one owner share their URL.
type Owner struct {
	Cluster   string `json:"cluster"` // the uid of the cluster's namespace kube-system
	Kind      string `json:"kind"`    // KindAgentEndpoint, KindCloudEndpoint or KindServiceExport
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// Is reports whether o and other are the same owner, or both nil.
func (o *Owner) Is(other *Owner) bool {
	if o == nil || other == nil {
		return o == other
	}
	return o.Cluster == other.Cluster && o.Object() == other.Object()
}

// Object returns "<kind>/<namespace>/<name>", which identifies the owner in its cluster.
func (o *Owner) Object() string { return o.Kind + "/" + o.Namespace + "/" + o.Name }

// String names the owner in messages.
func (o *Owner) String() string {
	return fmt.Sprintf("%s %s/%s of cluster %s", o.Kind, o.Namespace, o.Name, o.Cluster)
}

// ObjectName returns the name for people of an object's endpoint, which is cut to MaxName.
func ObjectName(namespace, name string) string {
	name = namespace + "/" + name
	return name[:min(len(name), MaxName)]
}

// SharesURL reports whether the endpoint may be one of several with its URL.
func (e *Endpoint) SharesURL() bool { return e.PoolingEnabled || e.Owner != nil }

// Limits of the fields of an owner, in bytes.
const (
	MaxUID       = 128 // a cluster's or an object's
	MaxNamespace = 63
)

// ValidateClusterUID checks the uid of a cluster. Errors are CodeInvalid with the field.
func ValidateClusterUID(field, uid string) error {
	var r rules
	r.uid(field, uid)
	return r.err()
}

// checkOwner checks the owner of an endpoint, which may be nil, and must be of the kind.
func (r *rules) checkOwner(o *Owner, kind string) {
	if o == nil {
		return
	}
	r.uid("owner.cluster", o.Cluster)
	if o.Kind != kind {
		r.add("owner.kind", o.Kind, "must be "+kind)
	}
	if !validLabel(o.Namespace) {
		r.add("owner.namespace", o.Namespace, "must be the name of a Kubernetes namespace: a DNS label")
	}
	if !validSubdomain(o.Name) {
		r.add("owner.name", o.Name,
			"must be the name of a Kubernetes object: a DNS subdomain of at most 253 characters")
	}
	r.uid("owner.uid", o.UID)
}

func (r *rules) uid(field, uid string) {
	wrong := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-._:", c)
	}
	if uid == "" || len(uid) > MaxUID || strings.ContainsFunc(uid, wrong) {
		r.add(field, uid, fmt.Sprintf("must be a Kubernetes uid: 1 to %d letters, digits, '-', '.', '_' or ':'",
			MaxUID))
	}
}

// validSubdomain reports whether s is a DNS-1123 subdomain: labels with dots between them.
// Kubernetes limits the whole to 253 characters, not each label.
func validSubdomain(s string) bool {
	if len(s) == 0 || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			if c := label[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
				return false
			}
		}
	}
	return true
}
