// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package networkpolicy writes the NetworkPolicies of the forwarders, so that the cluster's network
// enforces EndpointAccess, too.
//
// NetworkPolicies unite: what one of them opens, no other closes. So there is one base policy,
// which isolates the forwarders and opens metrics, status and the target ports that nothing
// restricts, and one policy for each restricted target port, which opens it to those who may call.
// A restricted port without a policy of its own is closed to all.
//
// Inputs: the BoundEndpoints of internal/operator/controller/endpointsync, whose specs have the
// target ports, and EndpointAccess objects, which internal/endpointaccess evaluates. desired.go
// builds the policies as pure functions. Each pass writes what differs: first the ports' policies,
// then the base policy, then it deletes what is not wanted, so that callers who may call are not
// interrupted.
//
// internal/operator/controller/boundendpoint asks Written before it makes Services or reports a new
// spec as observed: until then no forwarder listens on a new target port. A port that leaves the
// Services loses its policy in the pass that its release causes, a minute before it is used again;
// its next hostname waits for a pass of its own.
package networkpolicy
