// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package device describes the browser of a login: the device and browser that its User-Agent
// names, its address, and the address's location.
//
// What comes in: a request, the client's address, and its location as internal/service/geo finds
// it. Where to: the session, as /app/sessions shows it. The client can forge the User-Agent, so the
// description is for display only and decides nothing.
package device

import (
	"net/http"
	"net/netip"
	"regexp"
	"strings"

	"github.com/mileusna/useragent"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/printable"
	"github.com/fairlead-dev/fairlead/internal/service/geo"
)

// Limits of stored texts, in characters.
const (
	maxAgent = 512
	maxField = 64
)

// FromRequest describes the browser that sent r from the address with the location.
func FromRequest(r *http.Request, ip netip.Addr, at geo.Location) account.Device {
	d := account.Device{UserAgent: parseUserAgent(r.UserAgent())}
	if ip.IsValid() {
		d.IPAddress = ip.Unmap().WithZone("").String()
	}
	if at.CountryCode != "" || at.Latitude != nil {
		d.Location = &account.Location{Latitude: at.Latitude, Longitude: at.Longitude, RadiusKM: at.RadiusKM}
		if at.CountryCode != "" {
			d.Location.CountryCode = &at.CountryCode
		}
	}
	if at.ASN != 0 {
		d.Network = &account.Network{ASN: at.ASN, Organization: at.Organization}
	}
	return d
}

// Patterns of a product and its version: the parser returns any other text as a name, too.
var (
	productName    = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9 ._-]*$`)
	productVersion = regexp.MustCompile(`^[0-9][A-Za-z0-9._-]*$`)
)

// parseUserAgent parses a User-Agent header. Unrecognized fields are empty; Raw is the header,
// truncated to maxAgent.
func parseUserAgent(raw string) account.UserAgent {
	raw = printable.Escape(strings.TrimSpace(raw), maxAgent)
	ua := useragent.Parse(raw)
	a := account.UserAgent{Raw: raw, OSName: fieldText(ua.OS), OSVersion: fieldText(ua.OSVersion),
		DeviceType: "Unknown"}
	if productName.MatchString(ua.Name) && productVersion.MatchString(ua.Version) {
		a.BrowserName, a.BrowserVersion = fieldText(ua.Name), fieldText(ua.Version)
	}
	switch a.OSVersion {
	case "x86_64", "i686", "aarch64", "armv7l", "armv8l": // an architecture
		a.OSVersion = ""
	}
	switch { // a bot may claim to be a desktop
	case ua.Bot:
		a.DeviceType = "Bot"
	case ua.Tablet:
		a.DeviceType = "Tablet"
	case ua.Mobile:
		a.DeviceType = "Mobile"
	case ua.Desktop:
		a.DeviceType = "Desktop"
	}
	return a
}

func fieldText(s string) string { return printable.Escape(strings.TrimSpace(s), maxField) }
