// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package geo

import (
	"math"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/printable"
)

const maxName = 100 // characters of a name

// add fills unset fields from a record. Fields that belong together come from one record: a city,
// and coordinates with their radius.
func (l *Location) add(record any) {
	r, ok := record.(map[string]any)
	if !ok {
		return
	}
	if l.CountryCode == "" && l.Latitude == nil {
		l.addLocation(r)
	}
	if l.ASN == 0 {
		if n := asn(first(r, "autonomous_system_number", "asn")); n > 0 {
			l.ASN = n
			l.Organization = name(first(r, "autonomous_system_organization", "as_organization", "as_name",
				"organization"))
		}
	}
}

func (l *Location) addLocation(r map[string]any) {
	country, nested := r["country"].(map[string]any)
	if nested {
		l.CountryCode, l.Country = code(country["iso_code"]), english(country)
	} else {
		l.CountryCode, l.Country = code(first(r, "country_code", "country")), name(first(r, "country_name", "country"))
	}
	if l.Country == l.CountryCode {
		l.Country = ""
	}
	if city, ok := r["city"].(map[string]any); ok {
		l.City = english(city)
	} else {
		l.City = name(r["city"])
	}
	if all, ok := r["subdivisions"].([]any); ok && len(all) > 0 {
		if largest, ok := all[0].(map[string]any); ok {
			l.Subdivision = english(largest)
		}
	} else {
		l.Subdivision = name(first(r, "subdivision", "region", "state1"))
	}
	at, nested := r["location"].(map[string]any)
	if !nested {
		at = r
	}
	lat, ok := number(first(at, "latitude", "lat"))
	long, ok2 := number(first(at, "longitude", "lng", "lon"))
	if !ok || !ok2 || math.Abs(lat) > 90 || math.Abs(long) > 180 {
		return
	}
	l.Latitude, l.Longitude = &lat, &long
	// half of the way around the earth
	if km, ok := number(first(at, "accuracy_radius", "radius")); ok && km > 0 && km <= 20_100 {
		rounded := int(math.Round(km))
		l.RadiusKM = &rounded
	}
}

// first returns the first of the named members that the record has.
func first(r map[string]any, names ...string) any {
	for _, n := range names {
		if v, ok := r[n]; ok {
			return v
		}
	}
	return nil
}

// english returns the English name of a nested record.
func english(r map[string]any) string {
	if names, ok := r["names"].(map[string]any); ok {
		return name(names["en"])
	}
	return name(r["name"])
}

// name reads a text.
func name(v any) string {
	s, _ := v.(string)
	return printable.Escape(strings.TrimSpace(s), maxName)
}

// code reads the code of a country: two letters.
func code(v any) string {
	s, _ := v.(string)
	if s = strings.ToUpper(s); len(s) != 2 || s[0] < 'A' || s[0] > 'Z' || s[1] < 'A' || s[1] > 'Z' {
		return ""
	}
	return s
}

// number reads a number, which flat layouts write as a text now and then.
func number(v any) (n float64, ok bool) {
	switch v := v.(type) {
	case float64:
		n, ok = v, true
	case float32:
		n, ok = float64(v), true
	case uint64:
		n, ok = float64(v), true
	case int64:
		n, ok = float64(v), true
	case int:
		n, ok = float64(v), true
	case string:
		var err error
		n, err = strconv.ParseFloat(v, 64)
		ok = err == nil
	}
	return n, ok && !math.IsNaN(n) && !math.IsInf(n, 0)
}

// asn reads the number of an autonomous system: 15169, or AS15169.
func asn(v any) int {
	if s, ok := v.(string); ok {
		v = strings.TrimPrefix(strings.ToUpper(s), "AS")
	}
	n, ok := number(v)
	if !ok || n < 1 || n > math.MaxUint32 {
		return 0
	}
	return int(n)
}
