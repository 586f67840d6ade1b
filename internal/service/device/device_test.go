// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/geo"
)

func TestFromRequest_ParsesUserAgents(t *testing.T) {
	t.Parallel()
	for agent, want := range map[string]account.UserAgent{
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 " +
			"Safari/537.36": {
			BrowserName: "Chrome", BrowserVersion: "142.0.0.0", DeviceType: "Desktop", OSName: "macOS",
			OSVersion: "10.15.7"},
		"Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) " +
			"Version/18.1 Mobile/15E148 Safari/604.1": {
			BrowserName: "Safari", BrowserVersion: "18.1", DeviceType: "Mobile", OSName: "iOS", OSVersion: "18.1"},
		"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/142.0.0.0 " +
			"Safari/537.36": {
			BrowserName: "Headless Chrome", BrowserVersion: "142.0.0.0", DeviceType: "Bot", OSName: "Linux"},
		"Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0": {
			BrowserName: "Firefox", BrowserVersion: "145.0", DeviceType: "Desktop", OSName: "Linux"},
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 " +
			"Safari/537.36 Edg/142.0.0.0": {
			BrowserName: "Edge", BrowserVersion: "142.0.0.0", DeviceType: "Desktop", OSName: "Windows",
			OSVersion: "10.0"},
		"Mozilla/5.0 (Linux; Android 15; Pixel 9) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Mobile " +
			"Safari/537.36": {
			BrowserName: "Chrome", BrowserVersion: "142.0.0.0", DeviceType: "Mobile", OSName: "Android",
			OSVersion: "15"},
		"Mozilla/5.0 (iPad; CPU OS 17_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.0 " +
			"Mobile/15E148 Safari/604.1": {
			BrowserName: "Safari", BrowserVersion: "17.0", DeviceType: "Tablet", OSName: "iOS", OSVersion: "17.0"},
		"curl/8.5.0":                  {BrowserName: "curl", BrowserVersion: "8.5.0", DeviceType: "Unknown"},
		"Go-http-client/2.0":          {BrowserName: "Go-http-client", BrowserVersion: "2.0", DeviceType: "Unknown"},
		"":                            {DeviceType: "Unknown"},
		"junk":                        {DeviceType: "Unknown"},
		"the administrator's browser": {DeviceType: "Unknown"},
		"Mozilla/5.0 (compatible)":    {DeviceType: "Unknown"},
		"<script>alert(1)</script>":   {DeviceType: "Unknown"},
		"Chrome/x":                    {DeviceType: "Unknown"},
		"((((":                        {DeviceType: "Unknown"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("User-Agent", agent)
		want.Raw = agent
		if got := FromRequest(r, netip.Addr{}, geo.Location{}); got.UserAgent != want || got.IPAddress != "" ||
			got.Location != nil ||
			got.Network != nil {
			t.Errorf("%s:\n got %+v\nwant %+v", agent, got, want)
		}
	}
}

func TestFromRequest_BoundsUserAgents(t *testing.T) {
	t.Parallel()
	for _, agent := range []string{
		"\x1b[31m\x00\xff" + strings.Repeat("é", 2000), strings.Repeat("(", 5000), strings.Repeat("Chrome/1;", 5000),
		"Mozilla/5.0 (" + strings.Repeat("Linux ", 3000) + ")", " \t ",
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("User-Agent", agent)
		ua := FromRequest(r, netip.Addr{}, geo.Location{}).UserAgent
		if utf8.RuneCountInString(ua.Raw) > 4*maxAgent+1 || !utf8.ValidString(ua.Raw) ||
			strings.ContainsAny(ua.Raw, "\x1b\x00") {
			t.Errorf("Raw of %.30q: %q", agent, ua.Raw)
		}
		for _, f := range []string{ua.BrowserName, ua.BrowserVersion, ua.OSName, ua.OSVersion} {
			if utf8.RuneCountInString(f) > 4*maxField+1 {
				t.Errorf("field of %.30q: %q", agent, f)
			}
		}
	}
}

func TestFromRequest_IncludesLocation(t *testing.T) {
	t.Parallel()
	lat, long, km := 37.77, -122.42, 5
	r := httptest.NewRequest("GET", "/", nil)
	d := FromRequest(r, netip.MustParseAddr("::ffff:203.0.113.9"),
		geo.Location{CountryCode: "US", Latitude: &lat, Longitude: &long,
			RadiusKM: &km, ASN: 64500, Organization: "Example Net"})
	if d.IPAddress != "203.0.113.9" || d.Location == nil || *d.Location.CountryCode != "US" ||
		*d.Location.Latitude != lat || *d.Location.Longitude != long || *d.Location.RadiusKM != km {
		t.Errorf("%+v, %+v", d, d.Location)
	}
	if d.Network == nil || *d.Network != (account.Network{ASN: 64500, Organization: "Example Net"}) {
		t.Errorf("%+v", d.Network)
	}
	if l := FromRequest(r, netip.Addr{}, geo.Location{Latitude: &lat, Longitude: &long}).Location; l == nil ||
		l.CountryCode != nil ||
		l.Latitude == nil {
		t.Errorf("without a country: %+v", l)
	}
}
