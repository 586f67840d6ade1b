// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/selector"
)

// admits is what the operators themselves do with their selectors: an endpoint belongs to one that has none, or if any of them admits it.
func admits(selectors []string) (func(*account.Endpoint) bool, error) {
	all := make([]*selector.Selector, len(selectors))
	for i, text := range selectors {
		var problem *selector.Error
		compiled, err := selector.Compile(text)
		switch {
		case errors.As(err, &problem):
			return nil, account.Invalid(fmt.Sprintf("binding.endpoint_selectors[%d]", i), account.Shorten(text),
				"of the operator does not compile: "+problem.Error()+"; correct it with a PATCH of the operator")
		case err != nil:
			return nil, err
		}
		all[i] = compiled
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
