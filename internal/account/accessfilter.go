// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"net/netip"
	"strings"
)

// AccessFilter selects sessions by endpoint and by the client's address. Empty fields match
// everything.
type AccessFilter struct {
	Endpoint string // a part of the URL, in any case, or the endpoint's id
	IP       string // an IP address, or the beginning of one
	Country  string // ISO 3166-1 alpha-2 code, in any case
}

// Address returns the IP address that the filter names in full, in the form in which sessions have
// it.
func (f AccessFilter) Address() (address string, whole bool) {
	ip, err := netip.ParseAddr(f.IP)
	if err != nil {
		return strings.ToLower(f.IP), false
	}
	return ip.Unmap().WithZone("").String(), true
}

// maxAddress is the length of the longest IP address, in bytes.
const maxAddress = 45

func (f AccessFilter) validate(r *rules) {
	r.text("endpoint", f.Endpoint, MaxSearch)
	if len(f.IP) > maxAddress || strings.Trim(strings.ToLower(f.IP), "0123456789abcdef:.") != "" {
		r.add("ip", f.IP, "must be an IP address, or what addresses begin with")
	}
	if f.Country != "" && !isCountryCode(f.Country) {
		r.add("country", f.Country, "must be a country's code of two letters, such as DE")
	}
}

func isCountryCode(s string) bool {
	return len(s) == 2 && strings.Trim(strings.ToUpper(s), "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// MaxAccessChoices bounds the URLs of AccessChoices.
const MaxAccessChoices = 200

// AccessChoices are the values of an AccessFilter that select something, sorted.
type AccessChoices struct {
	Endpoints []string // URLs that users have accessed, the first MaxAccessChoices
	Countries []string // codes of the countries of live sessions
}
