// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Condition types of a BoundEndpoint.
const (
	// ConditionServicesReady: both Services are as desired.
	ConditionServicesReady = "ServicesReady"
	// ConditionReachable: the forwarders listen and the endpoint is online.
	ConditionReachable = "Reachable"
	// ConditionReady: a pod that calls the hostname gets an answer from the endpoint.
	ConditionReady = "Ready"
	// ConditionSealed: connections are sealed, and every forwarder enforces it. It is absent where
	// nothing requires a seal.
	ConditionSealed = "Sealed"
)

// Condition types of a KubernetesOperator.
const (
	// ConditionRegistered: the account knows this installation.
	ConditionRegistered = "Registered"
	// ConditionAPIReachable: the account's API answered the last request, and changes of endpoints
	// arrive.
	ConditionAPIReachable = "APIReachable"
	// ConditionEdgeReachable: the forwarders have a session with the service's edge.
	ConditionEdgeReachable = "EdgeReachable"
	// ConditionAccountChanged: the credentials now belong to another account or store, and removals
	// are frozen.
	ConditionAccountChanged = "AccountChanged"
	// ConditionRemovalsHeld: many hostnames lost their endpoints at once, and none is removed
	// before a second list has confirmed it.
	ConditionRemovalsHeld = "RemovalsHeld"
	// ConditionServiceImportsReady: what clusters of the account export is imported. It is absent
	// where Services are not imported.
	ConditionServiceImportsReady = "ServiceImportsReady"
	// ConditionKeysKnown: the service knows the keys with which the cluster signs the pods' tokens.
	// It is absent where the pods present secrets.
	ConditionKeysKnown = "KeysKnown"
)

// Condition types of an EndpointAccess, besides ConditionAccepted: its selectors are valid; of an
// EndpointTrust: its authorities are, and no other object contradicts it.
const (
	// ConditionForwardersEnforce: all forwarders enforce the object.
	ConditionForwardersEnforce = "ForwardersEnforce"
	// ConditionNetworkPoliciesWritten: the manager wrote NetworkPolicies from the object. Of a
	// KubernetesOperator: those of its forwarders, where it is to write them.
	ConditionNetworkPoliciesWritten = "NetworkPoliciesWritten"
)

// Reasons of conditions. Each names the component that fails; internal/path/explanation.go explains
// each.
const (
	ReasonReady                 = "Ready"
	ReasonProjected             = "Projected"
	ReasonClusterSet            = "ClusterSet"
	ReasonReleased              = "Released"
	ReasonNamespaceNotFound     = "NamespaceNotFound"
	ReasonNamespaceForbidden    = "NamespaceForbidden"
	ReasonNamespaceNotAllowed   = "NamespaceNotAllowed"
	ReasonNamespaceTerminating  = "NamespaceTerminating"
	ReasonConflict              = "Conflict"
	ReasonPortsExhausted        = "PortsExhausted"
	ReasonInvalidEndpoint       = "InvalidEndpoint"
	ReasonQuotaExceeded         = "QuotaExceeded"
	ReasonClusterIPExhausted    = "ClusterIPExhausted"
	ReasonAdmissionDenied       = "AdmissionDenied"
	ReasonAdmissionChanged      = "AdmissionChanged"
	ReasonAnchorMissing         = "AnchorMissing"
	ReasonServiceTerminating    = "ServiceTerminating"
	ReasonAPIError              = "APIError"
	ReasonOnline                = "Online"
	ReasonAgentOffline          = "AgentOffline"
	ReasonEndpointRemoved       = "EndpointRemoved"
	ReasonListenerFailed        = "ListenerFailed"
	ReasonServiceUnreachable    = "ServiceUnreachable"
	ReasonRegistered            = "Registered"
	ReasonUnauthorized          = "Unauthorized"
	ReasonUnreachable           = "Unreachable"
	ReasonBadAnswer             = "BadAnswer"
	ReasonUnavailable           = "Unavailable"
	ReasonWatchFailed           = "WatchFailed"
	ReasonRejected              = "Rejected"
	ReasonLimitReached          = "LimitReached"
	ReasonSecondRelease         = "SecondRelease"
	ReasonAccountRecorded       = "AccountRecorded"
	ReasonAccountChanged        = "AccountChanged"
	ReasonStoreChanged          = "StoreChanged"
	ReasonMassRemoval           = "MassRemoval"
	ReasonNothingHeld           = "NothingHeld"
	ReasonCRDsMissing           = "CRDsMissing"
	ReasonImportsForbidden      = "ImportsForbidden"
	ReasonClusterSetUnknown     = "ClusterSetUnknown"
	ReasonNetworkPolicyFailed   = "NetworkPolicyFailed"
	ReasonInvalidSelector       = "InvalidSelector"
	ReasonInvalidAuthority      = "InvalidAuthority"
	ReasonAccountMissing        = "AccountMissing"
	ReasonEnforced              = "Enforced"
	ReasonPodIdentityDisabled   = "PodIdentityDisabled"
	ReasonNetworkPoliciesDecide = "NetworkPoliciesDecide"
	ReasonForwardersBehind      = "ForwardersBehind"
	ReasonForwardersUnknown     = "ForwardersUnknown"
	ReasonWritten               = "Written"
	ReasonNotWritten            = "NotWritten"
	ReasonDisabled              = "Disabled"
	ReasonKeysKnown             = "KeysKnown"
	ReasonKeysMissing           = "KeysMissing"
	ReasonKeysUnreadable        = "KeysUnreadable"
	ReasonUnknownKey            = "UnknownKey"
	ReasonAuthority             = "Authority"
	ReasonPinned                = "Pinned"
	ReasonFirstSight            = "FirstSight"
	ReasonNotPinned             = "NotPinned"
	ReasonKeyUnknown            = "KeyUnknown"
	ReasonKeyChanged            = "KeyChanged"
	ReasonNameMismatch          = "NameMismatch"
	ReasonExpired               = "Expired"
	ReasonNotSealed             = "NotSealed"
)

// ReasonTopLevelDomain is the reason of an event, and of no condition: a namespace is named like a
// top-level domain, so pods no longer reach an internet name that the endpoint has, too.
const ReasonTopLevelDomain = "TopLevelDomain"
