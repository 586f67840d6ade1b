// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/path"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
)

// templateFuncs returns the functions of the templates. None returns HTML: templates escape it all
// but the drawings of package chart.
func (s *server) templateFuncs() template.FuncMap {
	return template.FuncMap{
		"time":     s.instantOf,
		"count":    count,
		"sentence": sentence,
		"hop":      path.Label,
		"lines":    func(text string) []string { return strings.Split(text, "\n") },
		"labels":   labelList,
		"short":    shortID,
		"kid":      shortKeyID,
		"asset":    s.static.URL,
		"object":   objectLink,
		"scopes":   func(all []account.Scope) string { return httpkit.JoinScopes(all, ", ") },
		"join":     strings.Join,
		"dash":     orDash,
		"path":     func(parts ...string) string { return Path + strings.Join(parts, "/") },
		"list":     func(values ...any) []any { return values },
		"kindName": kindName,
		"command":  func(k account.BackendKind) string { return backendCommands[k] },
		"kindOf":   func(id string) account.BackendKind { return backendKindOf(id) },
		"person":   personName,
		"browser":  browserName,
		"system":   systemName,
		"coords":   coordinates,
		"country":  s.countries.at,
		"map":      mapLink,
		"device":   deviceName,
		"duration": durationText,
		"bytes":    bytesText,
		"session":  func(one account.AppSession) string { return sessionName(&one) },
	}
}

// instantOf returns the instant of a time.Time or *time.Time.
func (s *server) instantOf(at any) (instant, error) {
	now := s.opt.Clock()
	switch at := at.(type) {
	case time.Time:
		return instant{at, now}, nil
	case *time.Time:
		if at == nil {
			return instant{now: now}, nil
		}
		return instant{*at, now}, nil
	}
	return instant{}, fmt.Errorf("%T is not a time", at)
}

// count returns the number with the noun that fits it.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return thousands(n) + " " + many
}

func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func labelList(labels map[string]string) []string { return pairList(labels, "=") }

// pairList returns the names with their values, sorted.
func pairList(pairs map[string]string, separator string) []string {
	list := make([]string, 0, len(pairs))
	for _, name := range slices.Sorted(maps.Keys(pairs)) {
		list = append(list, name+separator+pairs[name])
	}
	return list
}

// shortID shortens an ID to its prefix and its random end.
func shortID(id string) string {
	prefix, rest, ok := strings.Cut(id, "-")
	if !ok || len(rest) <= 8 {
		return id
	}
	return prefix + "-…" + rest[len(rest)-8:]
}

// shortKeyID shortens the id of a key, which is a hash in most clusters, to its beginning.
func shortKeyID(kid string) string {
	if len(kid) <= 16 {
		return kid
	}
	return kid[:12] + "…"
}

func orDash(text string) string { return cmp.Or(text, "–") }

// objectLink returns the path of the page of the object with the ID, "" if it has none.
func objectLink(id string) string {
	prefix, _, _ := strings.Cut(id, "-")
	pages := map[string]string{
		account.PrefixEndpoint: "endpoints/", account.PrefixTunnelSession: "agents/",
		account.PrefixOperator: "kubernetes-operators/", account.PrefixCluster: "clusters/",
		account.PrefixUser: "traffic-policy/identities/", account.PrefixAppSession: "traffic-policy/sessions/",
	}
	for _, kind := range account.BackendKinds() {
		pages[kind.IDPrefix()] = "backends/"
	}
	if page := pages[prefix]; page != "" {
		return Path + page + id
	}
	return ""
}

// personName returns the first name of a user that is not blank, and the ID without one.
func personName(u account.User) string {
	for _, name := range []string{u.Name, u.Username, u.Email, u.ProviderUserID} {
		if strings.TrimSpace(name) != "" {
			return name
		}
	}
	return u.ID
}

func browserName(a account.UserAgent) string {
	return cmp.Or(strings.TrimSpace(a.BrowserName+" "+a.BrowserVersion), "Unknown browser")
}

func systemName(a account.UserAgent) string {
	return orDash(strings.TrimSpace(a.OSName + " " + a.OSVersion))
}

// deviceName returns the kind of device. Sessions of older versions have "" where it is not known.
func deviceName(a account.UserAgent) string { return cmp.Or(a.DeviceType, "Unknown") }

func coordinates(l *account.Location) string {
	if l == nil || l.Latitude == nil || l.Longitude == nil {
		return "–"
	}
	text := fmt.Sprintf("%.2f, %.2f", *l.Latitude, *l.Longitude)
	if l.RadiusKM != nil {
		text += fmt.Sprintf(" (within %d km)", *l.RadiusKM)
	}
	return text
}

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
