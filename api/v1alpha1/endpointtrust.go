// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EndpointTrustSpec selects endpoints of the object's namespace, and the authorities or keys by which
// agents may answer for them.
//
// +kubebuilder:validation:XValidation:rule="!has(self.authorities) || !has(self.keys)",message="give authorities or keys, not both"
type EndpointTrustSpec struct {
	EndpointSelection `json:",inline"`
	// Mode is Require: connections are sealed, or refused. Or it is Prefer: the same from the first sealed
	// connection with a URL on; until then, they are plain while none of its agents seals. Prefer needs
	// authorities or keys, here or in the chart, and is Require where binding.sealed is.
	// +kubebuilder:validation:Enum=Require;Prefer
	// +kubebuilder:default=Require
	Mode string `json:"mode,omitempty"`
	// Authorities are PEM certificates of the authorities, one of which must have signed the agent's
	// certificate; each text may have several. Without authorities and keys they are the chart's
	// binding.sealAuthority and, where that is not set, the key is trusted that is seen first, for
	// demonstrations: the service chooses it.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=16384
	// +kubebuilder:validation:items:XValidation:rule="self.contains('-----BEGIN CERTIFICATE-----') && !self.contains('PRIVATE KEY-----')",message="an authority is the PEM text of its certificate, without its key"
	// +listType=atomic
	// +optional
	Authorities []string `json:"authorities,omitempty"`
	// Keys are fingerprints of agents' public keys, one of which the agent must have: sha256/BASE64,
	// as the agent prints it.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=51
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^sha256/[A-Za-z0-9+/]{43}=$')",message="a key is sha256/BASE64, as the agent prints it"
	// +listType=set
	// +optional
	Keys []string `json:"keys,omitempty"`
}

// EndpointTrustStatus is what the manager observed. All fields but pins can be rebuilt.
type EndpointTrustStatus struct {
	// Conditions: Accepted, ForwardersEnforce.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Pins are the keys that were seen first, by URL, where nothing else is to be trusted. They stay when
	// the endpoint goes and comes back, and none is replaced: give the agent's new key in its place.
	// With mode Prefer they record which URLs were sealed, and no key is compared with them.
	// +kubebuilder:validation:MaxProperties=1000
	// +optional
	Pins map[string]string `json:"pins,omitempty"`
}

// EndpointTrust seals endpoints of its namespace: forwarders connect only with agents that it
// trusts, by TLS that ends at the agent. Of several objects that select one endpoint, all must trust
// the same authorities or keys; else its connections are refused.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=ept,path=endpointtrusts,singular=endpointtrust
// +kubebuilder:printcolumn:name="Endpoints",type=string,JSONPath=`.spec.endpoints`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Enforced",type=string,JSONPath=`.status.conditions[?(@.type=="ForwardersEnforce")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type EndpointTrust struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   EndpointTrustSpec   `json:"spec"`
	Status EndpointTrustStatus `json:"status,omitempty"`
}

// EndpointTrustList is a list of EndpointTrust objects.
//
// +kubebuilder:object:root=true
type EndpointTrustList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []EndpointTrust `json:"items"`
}
