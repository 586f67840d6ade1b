// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/sealed/authority"
)

// sealOf returns the identity by which the agent seals the connections of an endpoint; nil = it serves
// plain ones.
func sealOf(s *agentconfig.EndpointSpec, u account.EndpointURL, broken *fieldErrors) *sealed.Identity {
	switch {
	case s.Sealed == "" && s.SealCallers != "":
		broken.add(agentconfig.FieldSealCallers, s.SealCallers, "is for a sealed endpoint: give --sealed (sealed), too")
		return nil
	case s.Sealed == "":
		return nil
	case commandOf(u.Scheme) == "http":
		broken.add(agentconfig.FieldSealed, s.Sealed, "only tcp endpoints can be sealed, by fairlead tcp")
		return nil
	}
	identity, err := authority.OpenIdentity(s.Sealed, s.SealCallers)
	if err == nil {
		err = authority.CheckURL(s.Sealed, identity, u)
	}
	*broken = append(*broken, account.FieldsOf(err)...)
	return identity
}
