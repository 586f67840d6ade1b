// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "k8s.io/apimachinery/pkg/runtime"

// KindConfigMap is the only kind of a TrafficPolicyRef.
const KindConfigMap = "ConfigMap"

// TrafficPolicyKey is the key of a ConfigMap under which its traffic policy stands.
const TrafficPolicyKey = "policy.yaml"

// TrafficPolicy is a traffic policy: written here, or in a ConfigMap.
//
// +kubebuilder:validation:XValidation:rule="has(self.inline) != has(self.targetRef)",message="give exactly one of inline and targetRef"
type TrafficPolicy struct {
	// Inline is the traffic policy, an object.
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Inline *runtime.RawExtension `json:"inline,omitempty"`
	// TargetRef names a ConfigMap of the object's namespace, with the traffic policy under the key
	// policy.yaml.
	// +optional
	TargetRef *TrafficPolicyRef `json:"targetRef,omitempty"`
}

// TrafficPolicyRef names an object of the same namespace that holds a traffic policy.
type TrafficPolicyRef struct {
	// Kind of the object.
	// +kubebuilder:validation:Enum=ConfigMap
	Kind string `json:"kind"`
	// Name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}
