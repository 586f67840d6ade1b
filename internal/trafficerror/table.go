// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficerror

import (
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// classes are all classes by code.
var classes = byCode(
	Class{
		Code: account.CodeEndpointOffline, Refusal: tunnel.RefusedOffline, Reason: "offline", Stream: "offline",
		message: "The endpoint %s is offline: its agent is not connected.",
	},
	Class{
		Code: account.CodeUpstreamUnreachable, Refusal: tunnel.RefusedUpstream, Reason: "upstream",
		message: "The agent of %s cannot reach its upstream.",
		page: "The agent of %s is online, but could not connect to its upstream, or does not trust its " +
			"certificate: the agent shows the cause. Start the upstream, correct the address that the agent was " +
			"given, or give it --upstream-ca-file, --upstream-ca-sha256 or --upstream-server-name.",
	},
	Class{
		Code: account.CodeUpstreamBroken, Refusal: tunnel.RefusedInternal, Reason: "upstream_broken", Stream: "broken",
		message: "The upstream of %s broke off before it had answered, or its answer was not HTTP.",
		page: "The upstream of %s ended the connection before it had answered, or its answer was not HTTP. It may " +
			"have " +
			"executed the request; its log may say why.",
	},
	Class{
		Code: account.CodeAgentSilent, Refusal: tunnel.RefusedUpstream, Reason: "agent_silent", Stream: "silent",
		message: "The agent of %s did not answer in time.",
		page:    "The agent of %s did not answer in time. Look at the agent's machine and its network.",
	},
	Class{
		Code: account.CodeEndpointUnknown, Refusal: tunnel.RefusedInternal, Reason: "unknown",
		message: "The service has no endpoint %s with the id that this cluster knows.",
		byURL:   "The account of this authtoken has no endpoint %s with the binding kubernetes.",
		page:    "%s was deleted.",
	},
	Class{
		Code: account.CodeAccessDenied, Refusal: tunnel.RefusedForbidden, Reason: "access_denied",
		message: "This pod may not call %s",
	},
	Class{
		Code: account.CodeScope, Refusal: tunnel.RefusedForbidden, Reason: "forbidden",
		message: "The authtoken of this cluster's forwarders may not connect to %s.",
		byURL:   "This authtoken has no connect rule for %s.",
	},
	Class{
		Code: account.CodeInternal, Refusal: tunnel.RefusedInternal, Reason: "edge_broken",
		message: "The service's edge could not serve %s",
	},
	Class{
		Code: account.CodeUnavailable, Refusal: tunnel.RefusedInternal,
		page: "The service cannot look up at the moment where %s leads. Try again in a moment.",
	},
	Class{
		Code: account.CodeNoTarget, Refusal: tunnel.RefusedOffline,
		page: "%s has nowhere to send this request: neither a backend, nor a traffic policy that answers or forwards " +
			"it. Set one of them.",
	},
	Class{
		Code: account.CodeNoChild, Refusal: tunnel.RefusedUpstream,
		page: "No child of the backend of %s could be reached. Start one of them, or look at what their " +
			"addresses and agents say.",
	},
	Class{
		Code: account.CodeNoInternal, Refusal: tunnel.RefusedOffline,
		page: "The traffic policy of %s forwards to an internal endpoint that does not exist. Make it, or " +
			"correct the policy.",
	},
	Class{
		Code: account.CodeLoop, Refusal: tunnel.RefusedOffline,
		page: "%s forwards from one internal endpoint to the next too often; perhaps in a circle. Correct their " +
			"traffic policies.",
	},
	Class{
		Code: account.CodePolicyBroken, Refusal: tunnel.RefusedOffline,
		page: "The traffic policy of %s cannot be applied, so nothing passes. Set it again: the service says what is " +
			"wrong with it.",
	},
	Class{
		Code: account.CodeEndpointSealed, Refusal: tunnel.RefusedSealed, Reason: "sealed",
		message: "The endpoint %s is sealed, and this cluster has no trust for its agent's key: set " +
			"binding.sealed or an EndpointTrust.",
		page: "The endpoint %s is sealed: its agent serves no connection that the service could read.",
	},
	Class{
		Code: account.CodeNotSealed, Refusal: tunnel.RefusedNotSealed, Reason: "not_sealed",
		message: "This cluster requires sealed connections with %s, and its agent does not seal: start it with " +
			"--sealed.",
	},
	Class{
		Code: account.CodeSealUntrusted, Reason: "seal_untrusted",
		message: "The agent of %s is not trusted by this cluster",
	},
	Class{Code: account.CodeDenied, Refusal: tunnel.RefusedInternal},
)

// unansweredPage is the page of CodeAgentSilent for ErrUnanswered.
const unansweredPage = "The agent of %s took the request and does not respond any more. The request may have been " +
	"executed: see whether it was before you send it again. Look at the agent's machine and its network."

func byCode(list ...Class) map[account.Code]Class {
	m := make(map[account.Code]Class, len(list))
	for _, c := range list {
		m[c.Code] = c
	}
	return m
}
