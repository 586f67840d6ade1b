// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/selector"
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
	facts.Digest = cmp.Or(facts.Digest, emptyPolicyDigest) // the store keeps the text only with a digest
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

// compileSelectors compiles an operator's selectors, as the operators themselves do: an endpoint
// belongs to an operator that has none, or if any of them admits it. CodeInvalid lists every
// selector that does not compile.
func compileSelectors(selectors []string) (func(*account.Endpoint) bool, error) {
	all := make([]*selector.Selector, len(selectors))
	var broken []account.FieldError
	for i, text := range selectors {
		var problem *selector.Error
		compiled, err := selector.Compile(text)
		switch {
		case errors.As(err, &problem):
			broken = append(broken, account.FieldError{
				Field: fmt.Sprintf("binding.endpoint_selectors[%d]", i), Value: account.Shorten(text),
				Rule: "does not compile: " + problem.Error() +
					"; give the operator a CEL expression over ep, such as ep.hostname.endsWith('.prod')",
			})
		case err != nil:
			return nil, err
		}
		all[i] = compiled
	}
	if len(broken) > 0 {
		return nil, account.InvalidAll(broken)
	}
	return func(e *account.Endpoint) bool {
		u, err := account.ParseEndpointURL(e.URL)
		if err != nil {
			return false
		}
		for _, one := range all {
			if ok, err := one.Matches(e, u); ok && err == nil {
				return true
			}
		}
		return len(all) == 0
	}, nil
}
