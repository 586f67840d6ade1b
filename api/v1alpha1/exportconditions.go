// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Condition types of an AgentEndpoint, beside ConditionReady. A CloudEndpoint has them without
// ConditionUpstreamReady.
const (
	// ConditionAccepted: the spec is valid, and what it names exists and may be used.
	ConditionAccepted = "Accepted"
	// ConditionBound: the account has the endpoint. Of an AgentEndpoint, the exporter holds it.
	ConditionBound = "Bound"
	// ConditionUpstreamReady: the Service has ready endpoints.
	ConditionUpstreamReady = "UpstreamReady"
)

// Reasons of the conditions of AgentEndpoints and CloudEndpoints, beside ReasonReady,
// ReasonRejected, ReasonLimitReached and ReasonUnreachable. internal/path/explanation.go explains each.
const (
	ReasonAccepted           = "Accepted"
	ReasonUpstreamNotFound   = "UpstreamNotFound"
	ReasonUpstreamNotAllowed = "UpstreamNotAllowed"
	ReasonUnsupportedService = "UnsupportedService"
	ReasonPortNotFound       = "PortNotFound"
	ReasonPolicyInvalid      = "PolicyInvalid"
	ReasonPolicyNotFound     = "PolicyNotFound"
	ReasonURLNotAllowed      = "URLNotAllowed"
	ReasonSealUnavailable    = "SealUnavailable"
	ReasonBound              = "Bound"
	ReasonURLTaken           = "URLTaken"
	ReasonForbidden          = "Forbidden"
	ReasonPending            = "Pending"
	ReasonNoReadyEndpoints   = "NoReadyEndpoints"
)
