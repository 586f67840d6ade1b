// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	_ "embed"
	"fmt"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// countryLines are the countries of ISO 3166-1, one a line: the code, a space, the short name. XK
// is what databases have for Kosovo.
//
//go:embed countries.txt
var countryLines string

// countryNames are the names of countries by their codes.
type countryNames map[string]string

func parseCountries() countryNames {
	names := countryNames{}
	for line := range strings.Lines(countryLines) {
		code, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		names[code] = name
	}
	return names
}

// name returns the name of the country with the code, or the code itself where there is no name.
func (n countryNames) name(code string) string { return cmp.Or(n[code], code) }

// at returns the name of the country of a location, "" where it is not known.
func (n countryNames) at(l *account.Location) string {
	if l == nil || l.CountryCode == nil {
		return ""
	}
	return n.name(*l.CountryCode)
}

// mapLink returns the address of a map around the location's coordinates, "" without coordinates.
// It is a link that people may follow: no page loads anything of it.
func mapLink(l *account.Location) string {
	if l == nil || l.Latitude == nil || l.Longitude == nil {
		return ""
	}
	zoom := 12
	if l.RadiusKM != nil {
		for km := 5; km < *l.RadiusKM && zoom > 3; km *= 2 {
			zoom--
		}
	}
	return fmt.Sprintf("https://www.openstreetmap.org/?mlat=%[1]g&mlon=%[2]g#map=%[3]d/%[1]g/%[2]g", *l.Latitude,
		*l.Longitude, zoom)
}
