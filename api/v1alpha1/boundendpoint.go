// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// BoundEndpointState is the state of a BoundEndpoint or of one of its ports.
//
// +kubebuilder:validation:Enum=Bound;Released
type BoundEndpointState string

// States. Bound: the Services exist and have the port. Released: they have been deleted, or lack
// the port, and the target port is not used again before removeAfter.
const (
	StateBound    BoundEndpointState = "Bound"
	StateReleased BoundEndpointState = "Released"
)

// Projection is how pods of a namespace reach the forwarders.
// +kubebuilder:validation:Enum=externalName;endpointSlice
type Projection string

// Projections.
const (
	// ProjectionExternalName: the target Service is a CNAME of the upstream Service.
	ProjectionExternalName Projection = "externalName"
	// ProjectionEndpointSlice: the target Service has a ClusterIP, and EndpointSlices of ours with
	// the forwarders' addresses. There is no upstream Service.
	ProjectionEndpointSlice Projection = "endpointSlice"
)

// Valid reports whether it is one of the above.
func (p Projection) Valid() bool { return p == ProjectionExternalName || p == ProjectionEndpointSlice }

// AppProtocolH2C is the application protocol of a port that takes HTTP/2 in cleartext at once.
const AppProtocolH2C = "kubernetes.io/h2c"

// LabelProjection is the label of a namespace whose value, a Projection, replaces the
// installation's there.
const LabelProjection = "bindings.fairlead.dev/projection"

// BoundEndpointSpec is written by endpointsync from an account's endpoints with one hostname.
type BoundEndpointSpec struct {
	// Service is the first label of the hostname: the name of the target Service.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	Service string `json:"service"`
	// Namespace is the second label of the hostname: the namespace of the target Service.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace"`
	// Cluster is the third label of the hostname: the id of the cluster that exports the Service.
	// An object with it has no Services of its own: those of the ServiceImport lead to its target
	// ports.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +optional
	Cluster string `json:"cluster,omitempty"`
	// ProjectionID names the upstream Service. It is the id of the hostname's first endpoint and
	// the same in every cluster.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ProjectionID string `json:"projectionID"`
	// Endpoints are the account's endpoints with this hostname that the selector admits. A port
	// that none of them has (its agent disconnected less than removalDelay ago) stays in the
	// Services, and forwarders answer for it as for an endpoint whose agent is offline. Endpoints
	// whose removal is held, as one of many or as another account's, stay.
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=1000
	Endpoints []EndpointRef `json:"endpoints,omitempty"`
	// Ports are the ports of the Services, one per URL of the hostname.
	// +listType=map
	// +listMapKey=port
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	Ports []BoundPort `json:"ports"`
	// ServiceLabels are labels of the Services that endpoints ask for and binding.services admits.
	// +optional
	ServiceLabels map[string]string `json:"serviceLabels,omitempty"`
	// State is Bound, or Released once the Services must be deleted.
	// +kubebuilder:default=Bound
	State BoundEndpointState `json:"state,omitempty"`
	// RemoveAfter is the deadline after which a BoundEndpoint without endpoints is released, and
	// once it is released, the time after which it is deleted and its ports are free. It is the
	// latest of its ports' deadlines, and absent while one port has none.
	RemoveAfter *metav1.Time `json:"removeAfter,omitempty"`
}

// Hostname returns <service>.<namespace>, or <service>.<namespace>.<cluster>: the object's name.
func (s *BoundEndpointSpec) Hostname() string {
	if s.Cluster == "" {
		return s.Service + "." + s.Namespace
	}
	return s.Service + "." + s.Namespace + "." + s.Cluster
}

// EndpointRef names one endpoint of the account.
type EndpointRef struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ID string `json:"id"`
	// +kubebuilder:validation:MaxLength=300
	URL string `json:"url"`
}

// BoundPort is one port of the hostname.
type BoundPort struct {
	// Port is the URL's port, which pods connect to.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// Scheme of the URL.
	// +kubebuilder:validation:Enum=http;tcp
	Scheme string `json:"scheme"`
	// AppProtocol of the Services' port where it is not the scheme: the upstreams of all the port's
	// endpoints speak HTTP/2.
	// +kubebuilder:validation:Enum=kubernetes.io/h2c
	// +optional
	AppProtocol string `json:"appProtocol,omitempty"`
	// TargetPort is the port on which the forwarders listen: unique in the operator's namespace.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	TargetPort int32 `json:"targetPort"`
	// State is Bound, or Released once the port has left the Services: no forwarder listens on its
	// targetPort, which is not used again before removeAfter.
	// +kubebuilder:default=Bound
	State BoundEndpointState `json:"state,omitempty"`
	// RemoveAfter is the deadline after which a port without endpoints is released, and once it is
	// released, the time after which it is removed from the list and its targetPort is free.
	RemoveAfter *metav1.Time `json:"removeAfter,omitempty"`
}

// BoundEndpointStatus is what boundendpoint observed and did. All fields but clusterIP can be
// rebuilt.
type BoundEndpointStatus struct {
	// Conditions: ServicesReady, Reachable, Ready and, where connections have to be sealed, Sealed.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Projection that the Services have. Empty means externalName, as an earlier version wrote it.
	Projection Projection `json:"projection,omitempty"`
	// ClusterIP of the upstream Service, or with projection endpointSlice of the target Service. It
	// is requested again if the Service has to be re-created.
	ClusterIP string `json:"clusterIP,omitempty"`
	// ClusterIPs are its addresses of both families, ClusterIP first, requested again likewise.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	ClusterIPs []string `json:"clusterIPs,omitempty"`
	// Target is "<upstream service>.<operator namespace>", or with projection endpointSlice the
	// Service of the forwarders, whose addresses the slices list; for people.
	Target string `json:"target,omitempty"`
	// URLs of the endpoints, comma-separated, for people.
	URLs string `json:"urls,omitempty"`
	// EndpointCount is the number of endpoints.
	EndpointCount int32 `json:"endpointCount,omitempty"`
	// Forwarders is how many forwarders listen, of how many that run: "2/2", for people.
	Forwarders string `json:"forwarders,omitempty"`
	// AllForwardersListen is true while Forwarders counts all of them.
	AllForwardersListen bool `json:"allForwardersListen,omitempty"`
	// Sealed is by what agents are trusted to seal connections: authority, pinned (keys), first-sight
	// (the key that was seen first), preferred (until a connection was sealed, they may be plain), no
	// (nothing requires a seal), or refused (rules contradict each other or cannot be read). It lists
	// several if ports differ.
	Sealed string `json:"sealed,omitempty"`
	// ConflictingService is the "<namespace>/<name>" of another owner's Service in the place of one
	// of this hostname's, while ServicesReady has reason Conflict.
	ConflictingService string `json:"conflictingService,omitempty"`
	// Services are those made for this hostname. A Service with a recorded UID is recognized even
	// if it has lost one of its marks.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Services []ServiceRef `json:"services,omitempty"`
}

// ServiceRef identifies a Service by its UID; another one of the same name has another UID.
type ServiceRef struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// In the rule below a field namespace has its escaped name: Kubernetes before 1.33 knows no other.

// BoundEndpoint is one hostname of the account, projected into this cluster. The operator writes
// it; people only read it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=bep
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.status.urls`
// +kubebuilder:printcolumn:name="Endpoints",type=integer,JSONPath=`.status.endpointCount`
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.status.target`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Sealed",type=string,JSONPath=`.status.sealed`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.startsWith(self.spec.service) && self.metadata.name.charAt(size(self.spec.service)) == '.' && (has(self.spec.cluster) ? size(self.metadata.name) == size(self.spec.service) + size(self.spec.__namespace__) + size(self.spec.cluster) + 2 && self.metadata.name.substring(size(self.spec.service) + 1, size(self.spec.service) + 1 + size(self.spec.__namespace__)) == self.spec.__namespace__ && self.metadata.name.charAt(size(self.spec.service) + 1 + size(self.spec.__namespace__)) == '.' && self.metadata.name.endsWith(self.spec.cluster) : self.metadata.name.substring(size(self.spec.service) + 1) == self.spec.__namespace__)",message="the name must be <spec.service>.<spec.namespace>[.<spec.cluster>]"
type BoundEndpoint struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   BoundEndpointSpec   `json:"spec"`
	Status BoundEndpointStatus `json:"status,omitempty"`
}

// Observed reports whether the manager has observed the current spec: the condition ServicesReady
// is of this generation. Only the manager may write the status, so a spec that another client wrote
// is not observed.
func (b *BoundEndpoint) Observed() bool {
	c := meta.FindStatusCondition(b.Status.Conditions, ConditionServicesReady)
	return c != nil && c.ObservedGeneration == b.Generation
}

// CompareAge orders BoundEndpoints by creation time, in seconds, and then by name. If two of them
// have one target port, the first keeps it: the manager and all forwarders agree.
func CompareAge(a, b *BoundEndpoint) int {
	return cmp.Or(
		a.CreationTimestamp.Truncate(time.Second).Compare(b.CreationTimestamp.Truncate(time.Second)),
		cmp.Compare(a.Name, b.Name))
}

// BoundEndpointList is a list of BoundEndpoints.
//
// +kubebuilder:object:root=true
type BoundEndpointList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []BoundEndpoint `json:"items"`
}
