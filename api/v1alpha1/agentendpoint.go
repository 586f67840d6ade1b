// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Values of Upstream.Protocol.
const (
	ProtocolHTTP1 = "http1"
	ProtocolHTTP2 = "http2"
)

// AgentEndpointSpec is an endpoint of the account whose upstream is a Service of this cluster.
//
// +kubebuilder:validation:XValidation:rule="self.url.startsWith('tcp://') == self.upstream.url.startsWith('tcp://')",message="url and upstream.url must both be tcp://, or both http:// or https://"
// +kubebuilder:validation:XValidation:rule="!(has(self.upstream.protocol) && self.url.startsWith('tcp://'))",message="upstream.protocol is for http:// and https:// only; remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.upstream.proxyProtocol) || self.upstream.url.startsWith('tcp://')",message="upstream.proxyProtocol is for tcp://; an http upstream finds the caller's address in X-Forwarded-For"
// +kubebuilder:validation:XValidation:rule="!has(self.upstream.tls) || self.upstream.url.startsWith('https://')",message="upstream.tls is for an upstream.url with https://"
// +kubebuilder:validation:XValidation:rule="!self.url.startsWith('https://') || 'public' in self.bindings",message="a url with https:// needs bindings: [public]"
// +kubebuilder:validation:XValidation:rule="!self.url.startsWith('tcp://') || !('public' in self.bindings)",message="a public url is http:// or https://"
type AgentEndpointSpec struct {
	// URL of the endpoint: http://NAME.NAMESPACE or tcp://NAME.NAMESPACE:PORT with the binding
	// kubernetes, where NAMESPACE must be the object's own unless the exporter admits others. It
	// cannot be changed.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=300
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="url cannot be changed: delete the object and make another"
	// +kubebuilder:validation:XValidation:rule="self.matches('^(http|https|tcp)://[^/?#@]+/?$')",message="a url is http://HOST[:PORT], https://HOST[:PORT] or tcp://HOST:PORT, without user, path, query or fragment"
	URL string `json:"url"`
	// Upstream is the Service that answers.
	Upstream Upstream `json:"upstream"`
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
	// PoolingEnabled shares the URL with other endpoints of the account that enable pooling: those
	// of another cluster, or of an agent.
	// +optional
	PoolingEnabled bool `json:"poolingEnabled,omitempty"`
	// Sealed makes the connections TLS from the caller's cluster to this one's exporters, which the
	// service cannot read, by the certificate that the chart's export.sealSecret mounts. Without one
	// that names the URL, nothing is served. The exporters apply the trafficPolicy.
	// +optional
	Sealed bool `json:"sealed,omitempty"`
	// Description is text for people, shown in the account.
	// +kubebuilder:validation:MaxLength=255
	// +optional
	Description string `json:"description,omitempty"`
	// Metadata is text for programs, shown in the account.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Metadata string `json:"metadata,omitempty"`
	// ServiceLabels are labels for the endpoint's Services, in clusters whose owners admit the keys.
	// +kubebuilder:validation:MaxProperties=16
	// +optional
	ServiceLabels map[string]string `json:"serviceLabels,omitempty"`
}

// Upstream is a Service, with the port that connections go to.
type Upstream struct {
	// URL of the Service: http://NAME:PORT or http://NAME.NAMESPACE.svc:PORT, likewise with https
	// and tcp. Without a port, http is 80 and https 443.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=300
	// +kubebuilder:validation:XValidation:rule="self.matches('^(http|https|tcp)://[^/?#@]+/?$')",message="an upstream's url is http://NAME:PORT, https://NAME:PORT or tcp://NAME:PORT, without user, path, query or fragment"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('tcp://') || self.matches(':[0-9]+/?$')",message="an upstream with tcp:// needs a port: tcp://NAME:PORT"
	URL string `json:"url"`
	// Protocol that the Service speaks behind http or https: http1, the default, or http2.
	// +kubebuilder:validation:Enum=http1;http2
	// +optional
	Protocol string `json:"protocol,omitempty"`
	// ProxyProtocol is the version of the PROXY protocol, 1 or 2, by which the Service behind tcp
	// reads the callers' addresses; none by default.
	// +kubebuilder:validation:Enum=1;2
	// +optional
	ProxyProtocol int32 `json:"proxyProtocol,omitempty"`
	// TLS is how the certificate of an https upstream is verified: by default by the system's
	// authorities, for the name SERVICE.NAMESPACE.svc.
	// +optional
	TLS *UpstreamTLS `json:"tls,omitempty"`
}

// UpstreamTLS is how the certificate of an https upstream is verified.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.ca) && has(self.caSHA256))",message="ca and caSHA256 exclude each other: give one of them"
type UpstreamTLS struct {
	// CA is the PEM text of the authorities to trust, as in the ca.crt of a Secret of cert-manager.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=262144
	// +optional
	CA string `json:"ca,omitempty"`
	// CASHA256 is the SHA-256, in hex, of the key of an authority that the upstream shows, or of its
	// certificate itself.
	// +kubebuilder:validation:Pattern=`^([0-9A-Fa-f]{2}:?){31}[0-9A-Fa-f]{2}$`
	// +optional
	CASHA256 string `json:"caSHA256,omitempty"`
	// ServerName is the name that the certificate is for, sent as SNI.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ServerName string `json:"serverName,omitempty"`
}

// AgentEndpointStatus is what the exporter observed.
type AgentEndpointStatus struct {
	// ObservedGeneration is the generation of the spec that the status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// ID of the endpoint in the account. Each replica of the exporter has an endpoint of its own
	// behind the URL; this is the oldest one's.
	ID string `json:"id,omitempty"`
	// AssignedURL is the URL at which the endpoint can be called, in its normal form.
	AssignedURL string `json:"assignedURL,omitempty"`
	// Conditions: Accepted, Bound, UpstreamReady, Ready.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// AgentEndpoint publishes a Service of this cluster as an endpoint of the account, which pods of
// other clusters call. The exporter binds it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=aep
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.url`
// +kubebuilder:printcolumn:name="Upstream",type=string,JSONPath=`.spec.upstream.url`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Binding",type=string,priority=1,JSONPath=`.spec.bindings[0]`
// +kubebuilder:printcolumn:name="ID",type=string,priority=1,JSONPath=`.status.id`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type AgentEndpoint struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   AgentEndpointSpec   `json:"spec"`
	Status AgentEndpointStatus `json:"status,omitempty"`
}

// AgentEndpointList is a list of AgentEndpoints.
//
// +kubebuilder:object:root=true
type AgentEndpointList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AgentEndpoint `json:"items"`
}
