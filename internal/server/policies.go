// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// compilePolicy compiles a traffic policy as the edge will, and tells the store what it has to know of it. It is an account.PolicyChecker.
func compilePolicy(text, scheme, binding string) (account.PolicyFacts, error) {
	p, err := trafficpolicy.Compile(text, trafficpolicy.Options{Scheme: scheme, Binding: binding})
	if err != nil {
		return account.PolicyFacts{}, err
	}
	return p.Facts(), nil
}
