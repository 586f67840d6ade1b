// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/sealed/authority"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// sealOf returns the identity by which the agent seals the connections of an endpoint; nil = it serves
// plain ones.
func sealOf(s *agentconfig.EndpointSpec, u account.EndpointURL, broken *fieldErrors) *sealed.Identity {
	switch {
	case s.Sealed == "" && s.SealCallers != "":
		broken.add(agentconfig.FieldSealCallers, s.SealCallers, "is for a sealed endpoint: give --sealed (sealed), too")
		return nil
	case s.SealClusters != "" && s.SealCallers == "":
		broken.add(agentconfig.FieldSealClusters, s.SealClusters, "is for --seal-callers (seal_callers): give it, too")
		return nil
	case s.Sealed == "":
		return nil
	case s.ReplacePoolPolicy:
		broken.add("replace_pool_policy", "true", "each agent of a sealed endpoint applies the policy of its own "+
			"file: leave it out, and give all of them the same file")
		return nil
	}
	identity, err := authority.OpenIdentity(s.Sealed, s.SealCallers, s.SealClusters)
	if err == nil {
		err = authority.CheckURL(s.Sealed, identity, u)
	}
	*broken = append(*broken, account.FieldsOf(err)...)
	return identity
}

// checkSealedPolicy checks the traffic policy of a sealed endpoint: the agent applies it.
func checkSealedPolicy(s *agentconfig.EndpointSpec, scheme string, broken *fieldErrors) {
	_, mistakes := trafficpolicy.Check(s.TrafficPolicy, trafficpolicy.Options{Scheme: scheme, Binding: s.Binding,
		Sealing: &trafficpolicy.Sealing{CallersProven: s.SealCallers != ""}})
	for _, p := range mistakes {
		broken.add("traffic_policy", p.Value, p.String())
	}
}
