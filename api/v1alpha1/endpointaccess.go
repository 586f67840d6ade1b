// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EndpointSelection selects endpoints of the object's namespace.
type EndpointSelection struct {
	// Endpoints are the first labels of the hostnames that are selected, of those in this
	// namespace: api selects http://api.NAMESPACE. A * stands for any characters.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[a-z0-9*]([-a-z0-9*]*[a-z0-9*])?$')",message="an endpoint is the first label of a hostname, such as api or api-*: neither a hostname nor a URL"
	// +listType=set
	Endpoints []string `json:"endpoints"`
	// Ports are the ports of the URLs that are selected; all by default.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=65535
	// +listType=set
	// +optional
	Ports []int32 `json:"ports,omitempty"`
}

// EndpointAccessSpec selects endpoints of the object's namespace and lists who may call them.
type EndpointAccessSpec struct {
	EndpointSelection `json:",inline"`
	// From lists who may call what is selected: a pod that one of the peers selects, of this object
	// or of another one that selects the same endpoint. Missing or empty allows no pod.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	From []EndpointAccessPeer `json:"from,omitempty"`
}

// EndpointAccessPeer selects pods: those to which all of its fields apply.
//
// +kubebuilder:validation:XValidation:rule="has(self.namespaceSelector) || has(self.podSelector) || has(self.serviceAccounts)",message="give namespaceSelector, podSelector or serviceAccounts; podSelector: {} is every pod of this namespace"
type EndpointAccessPeer struct {
	// NamespaceSelector selects pods' namespaces by label; {} selects all. Without it, pods are
	// those of the object's own namespace.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// PodSelector selects pods by label; {} and none select all pods of the namespaces.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
	// ServiceAccounts are names of ServiceAccounts in the namespaces, one of which the pod must
	// have; any by default.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	// +optional
	ServiceAccounts []string `json:"serviceAccounts,omitempty"`
	// ForwardedHeaders is what becomes of X-Forwarded-For, -Proto, -Host, -Port and Forwarded of the
	// pods' requests: Replace, the default, or Trust for gateways, whose headers are kept and
	// appended to.
	// +kubebuilder:validation:Enum=Replace;Trust
	// +optional
	ForwardedHeaders string `json:"forwardedHeaders,omitempty"`
}

// Values of EndpointAccessPeer.ForwardedHeaders.
const (
	ForwardedHeadersReplace = "Replace"
	ForwardedHeadersTrust   = "Trust"
)

// EndpointAccessStatus is what the manager observed. All fields can be rebuilt.
type EndpointAccessStatus struct {
	// Conditions: Accepted, ForwardersEnforce, NetworkPoliciesWritten.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Denied are the latest callers that forwarders denied, the latest first. Counts begin anew with
	// a forwarder.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Denied []DeniedCaller `json:"denied,omitempty"`
	// DeniedCalls is the sum of their counts, for people.
	DeniedCalls int64 `json:"deniedCalls,omitempty"`
}

// DeniedCaller is a caller that forwarders denied at one hostname.
type DeniedCaller struct {
	// Hostname that was called.
	Hostname string `json:"hostname"`
	// Caller is the pod as NAMESPACE/NAME, or the address of a caller that is not known.
	Caller string `json:"caller"`
	// Count of the calls.
	Count int64 `json:"count"`
	// LastTime is when the last one was denied.
	LastTime metav1.Time `json:"lastTime"`
}

// EndpointAccess restricts which pods may call endpoints of its namespace. An endpoint that some
// EndpointAccess selects can be called only by pods that one of them allows. Forwarders enforce it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=epa,path=endpointaccesses,singular=endpointaccess
// +kubebuilder:printcolumn:name="Endpoints",type=string,JSONPath=`.spec.endpoints`
// +kubebuilder:printcolumn:name="Enforced",type=string,JSONPath=`.status.conditions[?(@.type=="ForwardersEnforce")].status`
// +kubebuilder:printcolumn:name="Denied",type=integer,JSONPath=`.status.deniedCalls`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type EndpointAccess struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   EndpointAccessSpec   `json:"spec"`
	Status EndpointAccessStatus `json:"status,omitempty"`
}

// EndpointAccessList is a list of EndpointAccess objects.
//
// +kubebuilder:object:root=true
type EndpointAccessList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []EndpointAccess `json:"items"`
}
