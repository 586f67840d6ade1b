// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package httpkit

import (
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// JoinScopes joins the scopes with the separator.
func JoinScopes(scopes []account.Scope, sep string) string {
	texts := make([]string, len(scopes))
	for i, s := range scopes {
		texts[i] = string(s)
	}
	return strings.Join(texts, sep)
}

// ScopeAlternatives lists the scopes of which a key needs one: those given, or admin.
func ScopeAlternatives(scopes []account.Scope) string {
	return JoinScopes(append(slices.Clone(scopes), account.ScopeAdmin), " or ")
}
