// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// KubernetesOperatorSpec holds the release's values for this installation.
type KubernetesOperatorSpec struct {
	// Description of the installation, shown in the account.
	// +kubebuilder:validation:MaxLength=255
	Description string `json:"description,omitempty"`
	// BindingEnabled is binding.enabled of the chart.
	BindingEnabled bool `json:"bindingEnabled"`
	// EndpointSelector is binding.endpointSelector of the chart; empty selects all kubernetes-bound
	// endpoints.
	EndpointSelector string `json:"endpointSelector,omitempty"`
}

// KubernetesOperatorStatus is what registration learned from the account.
type KubernetesOperatorStatus struct {
	// OperatorID is the id of this installation in the account.
	OperatorID string `json:"operatorID,omitempty"`
	// AccountID and StoreID identify the account and the store that this installation belongs to:
	// those of the first list, or those that binding.acceptAccount named later. No other account's
	// lists remove endpoints.
	AccountID string `json:"accountID,omitempty"`
	StoreID   string `json:"storeID,omitempty"`
	// BoundEndpoints is the number of hostnames projected, ReadyEndpoints how many of them are
	// ready.
	BoundEndpoints int32 `json:"boundEndpoints"`
	ReadyEndpoints int32 `json:"readyEndpoints"`
	// Legs is how many replicas of the service a forwarder is connected to, of how many it should
	// be, such as "2/3": of the forwarder that lacks the most. Empty when no forwarder is
	// connected, and with a service that has no replicas.
	Legs string `json:"legs,omitempty"`
	// ProjectedForwarders are the addresses of forwarders that EndpointSlices of ours may list as
	// ready: written before an address enters any of them, and shortened after it has left all. A
	// stopping forwarder accepts until its own addresses are gone from here.
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=45
	ProjectedForwarders []string `json:"projectedForwarders,omitempty"`
	// NetworkPolicies is of which EndpointAccess objects the forwarders' NetworkPolicies are
	// written. Forwarders that leave the decision to NetworkPolicies deny what differs from it.
	NetworkPolicies *WrittenNetworkPolicies `json:"networkPolicies,omitempty"`
	// Conditions: Registered, APIReachable, EdgeReachable, AccountChanged, RemovalsHeld,
	// ServiceImportsReady, NetworkPoliciesWritten, KeysKnown.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NetworkPoliciesNotWritten is the digest in WrittenNetworkPolicies of a namespace whose policies
// are being written, or could not be. No namespace's objects have it.
const NetworkPoliciesNotWritten = "NotWritten"

// WrittenNetworkPolicies is what the forwarders' NetworkPolicies are written of.
type WrittenNetworkPolicies struct {
	// DefaultAccess holds for endpoints that no EndpointAccess selects: allow or deny.
	DefaultAccess string `json:"defaultAccess"`
	// Namespaces are the digests of the namespaces' EndpointAccess objects, of namespaces that have
	// some, or NotWritten.
	Namespaces map[string]string `json:"namespaces,omitempty"`
}

// KubernetesOperator is one release of the operator: its registration and its status.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=kop
// +kubebuilder:printcolumn:name="Operator",type=string,JSONPath=`.status.operatorID`
// +kubebuilder:printcolumn:name="Endpoints",type=integer,JSONPath=`.status.boundEndpoints`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyEndpoints`
// +kubebuilder:printcolumn:name="Registered",type=string,JSONPath=`.status.conditions[?(@.type=="Registered")].status`
// +kubebuilder:printcolumn:name="API",type=string,JSONPath=`.status.conditions[?(@.type=="APIReachable")].status`
// +kubebuilder:printcolumn:name="Legs",type=string,JSONPath=`.status.legs`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type KubernetesOperator struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   KubernetesOperatorSpec   `json:"spec"`
	Status KubernetesOperatorStatus `json:"status,omitempty"`
}

// KubernetesOperatorList is a list of KubernetesOperators.
//
// +kubebuilder:object:root=true
type KubernetesOperatorList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []KubernetesOperator `json:"items"`
}
