// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package acme

import (
	"cmp"
	"errors"
	"path"
	"strings"

	acmeclient "github.com/mholt/acmez/v3/acme"

	"github.com/fairlead-dev/fairlead/internal/printable"
)

// maxDetail bounds what is shown of a directory's own words.
const maxDetail = 500

const reachable = "let port 80 of HOST lead to --public-http-addr of this service, or port 443 to --public-https-addr, " +
	"without another server or a proxy that ends TLS"

// remedies has what to do about problems of directories; HOST stands for the host.
var remedies = map[string]string{
	acmeclient.ProblemTypeConnection:   reachable,
	acmeclient.ProblemTypeUnauthorized: reachable,
	acmeclient.ProblemTypeTLS:          reachable,
	acmeclient.ProblemTypeDNS:          "make a DNS record for HOST that leads to the public listeners",
	acmeclient.ProblemTypeCAA:          "allow the authority in the CAA record of the domain",
	acmeclient.ProblemTypeRateLimited: "wait, the order is tried again; many hosts below one domain want a wildcard " +
		"certificate, with --public-tls-cert",
	acmeclient.ProblemTypeRejectedIdentifier: "the authority issues no certificate for this name: give one with " +
		"--public-tls-cert",
	acmeclient.ProblemTypeExternalAccountRequired: "give --acme-eab-kid and --acme-eab-hmac-file, which the " +
		"authority hands out",
	acmeclient.ProblemTypeInvalidContact: "correct --acme-email",
}

// problemType returns the type of a directory's problem, "" for other errors.
func problemType(err error) string {
	var p acmeclient.Problem
	if errors.As(err, &p) {
		return p.Type
	}
	return ""
}

// describe returns why an order failed, with the directory's own sentence, and what to do.
func describe(host string, err error) string {
	why, remedy := err.Error(), "see that this server reaches the directory: proxy, firewall, and --acme-ca-file "+
		"for a private one"
	var p acmeclient.Problem
	if errors.As(err, &p) {
		why, remedy = p.Detail, cmp.Or(remedies[p.Type], "the authority's documentation explains "+
			path.Base(strings.ReplaceAll(p.Type, ":", "/")))
		for _, sub := range p.Subproblems {
			why += "; " + sub.Detail
		}
	}
	return "the ACME directory did not issue a certificate for " + host + ": " +
		strings.TrimSuffix(printable.Escape(why, maxDetail), ".") + "; " + strings.ReplaceAll(remedy, "HOST", host)
}
