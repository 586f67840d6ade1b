// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"
	"strings"
	"time"
)

// Domain is the grant of hosts to an account: only its endpoints with the public binding may have
// them. Pattern is a host (example.com), or "*." and a domain (*.example.com) for
// every host below it at any depth, the domain itself not included.
type Domain struct {
	Pattern   string
	AccountID string
	CreatedAt time.Time
}

const ruleDomain = "must be a domain name such as example.com, or *.example.com for every host below it: DNS labels " +
	"of a-z, 0-9 and '-', " +
	"other scripts in their ASCII form (xn--…), no scheme, no port, no dot at the end"

// ParseDomainPattern reads the pattern of a Domain and returns it in lower case. Errors are
// CodeInvalid with field "pattern".
func ParseDomainPattern(raw string) (string, error) {
	pattern := strings.ToLower(raw)
	below, wildcard := strings.CutPrefix(pattern, "*.")
	if !ValidPublicHost(pattern) && (!wildcard || !ValidPublicHost("x."+below)) {
		return "", Invalid("pattern", Shorten(raw), ruleDomain)
	}
	return pattern, nil
}

// DomainPatterns returns every pattern of a Domain that covers the host: at most as many as it has
// labels.
func DomainPatterns(host string) []string {
	patterns := []string{host}
	for {
		_, parent, ok := strings.Cut(host, ".")
		if !ok {
			return patterns
		}
		patterns = append(patterns, "*."+parent)
		host = parent
	}
}

// Domains stores the grants of domains. They are managed by the administrator of the service, not
// by an account.
type Domains interface {
	// GrantDomain grants the pattern to the account, which may have it already. CodeInUse when it
	// covers, or is covered by, a pattern of another account; CodeInvalid for what is no pattern;
	// CodeNotFound for an unknown account.
	GrantDomain(ctx context.Context, accountID, pattern string) (*Domain, error)
	// RevokeDomain ends a grant. Endpoints whose host no grant of the account covers any more are
	// offline from that moment on.
	RevokeDomain(ctx context.Context, accountID, pattern string) error
	// ListDomains returns the grants of an account, or of all with an empty accountID, by pattern.
	ListDomains(ctx context.Context, accountID string) ([]Domain, error)
}
