// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/login/saml"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// emptyPolicyDigest is the digest of every document without a rule.
const emptyPolicyDigest = "no rules"

// compilePolicy compiles a traffic policy as the edge does, and returns the facts of it that the
// store keeps. It is an account.PolicyChecker.
func compilePolicy(text, scheme, binding string) (account.PolicyFacts, error) {
	p, err := trafficpolicy.Compile(text,
		trafficpolicy.Options{Scheme: scheme, Binding: binding, ValidateLogin: checkLogin})
	if err != nil {
		return account.PolicyFacts{}, err
	}
	facts := p.Facts()
	if facts.Digest == "" {
		facts.Digest = emptyPolicyDigest // the store keeps the text only with a digest
	}
	return facts, nil
}

// checkLogin finds mistakes in login actions that would otherwise show at the first login. Stored
// policies are not checked: a certificate that expires must not disable its endpoint.
func checkLogin(c *trafficpolicy.LoginConfig) error {
	if c.Kind == trafficpolicy.LoginSAML {
		return saml.ValidateConfig(c, time.Now())
	}
	return nil
}
