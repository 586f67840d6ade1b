// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CloudEndpointSpec is an endpoint of the account that the service answers itself: by its traffic
// policy, or by a backend of the account.
//
// +kubebuilder:validation:XValidation:rule="!self.url.startsWith('https://') || 'public' in self.bindings",message="a url with https:// needs bindings: [public]"
// +kubebuilder:validation:XValidation:rule="!self.url.startsWith('tcp://') || !('public' in self.bindings)",message="a public url is http:// or https://"
type CloudEndpointSpec struct {
	// URL of the endpoint: http://NAME.NAMESPACE or tcp://NAME.NAMESPACE:PORT with the binding
	// kubernetes, where NAMESPACE must be the object's own unless the exporter admits others. It
	// cannot be changed.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=300
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="url cannot be changed: delete the object and make another"
	// +kubebuilder:validation:XValidation:rule="self.matches('^(http|https|tcp)://[^/?#@]+/?$')",message="a url is http://HOST[:PORT], https://HOST[:PORT] or tcp://HOST:PORT, without user, path, query or fragment"
	URL string `json:"url"`
	// Backend that answers where the traffic policy does not.
	// +optional
	Backend *Backend `json:"backend,omitempty"`
	// TrafficPolicy of the endpoint; none by default.
	// +optional
	TrafficPolicy *TrafficPolicy `json:"trafficPolicy,omitempty"`
	// Bindings is who can call the endpoint: kubernetes, public or internal. It cannot be changed.
	// +kubebuilder:default={kubernetes}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1
	// +kubebuilder:validation:items:Enum=kubernetes;public;internal
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="bindings cannot be changed: delete the object and make another"
	// +listType=atomic
	// +optional
	Bindings []string `json:"bindings,omitempty"`
	// PoolingEnabled shares the URL with other endpoints of the account that enable pooling.
	// +optional
	PoolingEnabled bool `json:"poolingEnabled,omitempty"`
	// Description is text for people, shown in the account.
	// +kubebuilder:validation:MaxLength=255
	// +optional
	Description string `json:"description,omitempty"`
	// Metadata is text for programs, shown in the account.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Metadata string `json:"metadata,omitempty"`
}

// Backend names a backend of the account.
type Backend struct {
	// ID of the backend.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ID string `json:"id"`
}

// CloudEndpointStatus is what the exporter observed.
type CloudEndpointStatus struct {
	// ObservedGeneration is the generation of the spec that the status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// ID of the endpoint in the account.
	ID string `json:"id,omitempty"`
	// AssignedURL is the URL at which the endpoint can be called, in its normal form.
	AssignedURL string `json:"assignedURL,omitempty"`
	// Conditions: Accepted, Bound, Ready.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// CloudEndpoint is an endpoint of the account that needs no upstream in this cluster. The exporter
// keeps it in the account.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cloudep
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.url`
// +kubebuilder:printcolumn:name="Backend",type=string,JSONPath=`.spec.backend.id`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Binding",type=string,priority=1,JSONPath=`.spec.bindings[0]`
// +kubebuilder:printcolumn:name="ID",type=string,priority=1,JSONPath=`.status.id`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type CloudEndpoint struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   CloudEndpointSpec   `json:"spec"`
	Status CloudEndpointStatus `json:"status,omitempty"`
}

// CloudEndpointList is a list of CloudEndpoints.
//
// +kubebuilder:object:root=true
type CloudEndpointList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []CloudEndpoint `json:"items"`
}
