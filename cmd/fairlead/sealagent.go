// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"

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
	source := &authority.Source{CertFile: filepath.Join(s.Sealed, "tls.crt"),
		KeyFile: filepath.Join(s.Sealed, "tls.key")}
	cert, err := source.Certificate()
	if err != nil {
		broken.add(agentconfig.FieldSealed, s.Sealed, err.Error())
		return nil
	}
	o := sealed.IdentityOptions{Account: cert.Leaf.URIs[0].Host, Certificate: source.Certificate,
		Files: []sealed.File{source}}
	if s.SealCallers != "" {
		callers := &authority.Callers{File: s.SealCallers}
		if err := callers.Problem(); err != nil {
			broken.add(agentconfig.FieldSealCallers, s.SealCallers, err.Error())
			return nil
		}
		o.Callers, o.RequireCaller, o.Files = callers, true, append(o.Files, callers)
	}
	identity, err := sealed.NewIdentity(o)
	if err == nil && !sealed.Covers(cert.Leaf.URIs, o.Account, u) {
		broken.add(agentconfig.FieldSealed, s.Sealed, "its certificate does not name "+u.String()+
			": have one signed that does, fairlead seal sign --url "+u.String())
	}
	if err != nil {
		broken.add(agentconfig.FieldSealed, s.Sealed, err.Error())
	}
	return identity
}
