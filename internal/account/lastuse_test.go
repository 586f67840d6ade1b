// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"testing"
	"time"
)

func TestLastUse_Compare(t *testing.T) {
	t.Parallel()
	device := func(ip, browser, version, system, country string) Device {
		d := Device{IPAddress: ip, UserAgent: UserAgent{
			Raw: browser + "/" + version + " " + system, BrowserName: browser,
			BrowserVersion: version, OSName: system}}
		if country != "" {
			d.Location = &Location{CountryCode: &country}
		}
		return d
	}
	now := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
	home := device("203.0.113.9", "Chrome", "142", "macOS", "DE")
	moved := device("198.51.100.3", "Chrome", "142", "macOS", "BR")
	other := device("203.0.113.9", "curl", "8", "", "DE")
	program := func(name string) Device { return Device{UserAgent: UserAgent{Raw: name}} }
	just := now.Add(-59 * time.Second)
	for name, test := range map[string]struct {
		last           LastUse
		now            Device
		due, different bool
	}{
		"the same":        {LastUse{Device: home}, home, false, false},
		"another address": {LastUse{Device: home}, device("2001:db8::1", "Chrome", "142", "macOS", "DE"), true, false},
		"an update":       {LastUse{Device: home}, device("203.0.113.9", "Chrome", "143", "macOS", "DE"), true, false},
		"another address at once": {LastUse{Device: home, WrittenAt: just},
			device("203.0.113.8", "Chrome", "142", "macOS", "DE"), false, false},
		"another country":         {LastUse{Device: home}, moved, true, true},
		"another browser":         {LastUse{Device: home, WrittenAt: now}, other, true, true},
		"another browser at once": {LastUse{Device: home, ChangedAt: just}, other, false, true},
		"an unknown country": {LastUse{Device: home}, device("203.0.113.9", "Chrome", "142", "macOS", ""), false,
			false},
		"nothing is known": {LastUse{}, home, true, false},
		"no header":        {LastUse{Device: home}, Device{IPAddress: "203.0.113.9"}, true, true},
		"programs":         {LastUse{Device: program("a")}, program("b"), true, true},
	} {
		if due, different := test.last.Compare(test.now, now); due != test.due || different != test.different {
			t.Errorf("%s: due %t, a change %t", name, due, different)
		}
	}
}
