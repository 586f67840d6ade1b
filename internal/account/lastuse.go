// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import "time"

// lastUseInterval is the least time between two writes of a session's last device, and between two
// events of its change.
const lastUseInterval = time.Minute

// LastUse is the browser that used a session last.
type LastUse struct {
	Device    Device
	WrittenAt time.Time // WrittenAt is when Device was written; zero = at the login.
	ChangedAt time.Time // ChangedAt is when a device or country differed from the one before; zero = never.
}

// Compare compares the device of a request with the last one. due reports whether it has to be
// written; changed, whether it is another kind of device, system or browser, or in another country. A
// browser that was updated, and another address, are no change.
func (l LastUse) Compare(d Device, now time.Time) (due, changed bool) {
	last := l.Device
	unknown := last.IPAddress == "" && last.UserAgent == UserAgent{}
	if !unknown && (last.UserAgent.differs(d.UserAgent) || last.Location.differs(d.Location)) {
		return now.Sub(l.ChangedAt) >= lastUseInterval, true
	}
	same := last.IPAddress == d.IPAddress && last.UserAgent == d.UserAgent
	return !same && now.Sub(l.WrittenAt) >= lastUseInterval, false
}

func (a UserAgent) differs(b UserAgent) bool {
	if a.BrowserName == "" && a.OSName == "" && b.BrowserName == "" && b.OSName == "" {
		return a.Raw != b.Raw
	}
	return a.DeviceType != b.DeviceType || a.OSName != b.OSName || a.BrowserName != b.BrowserName
}

// Summary names browser and system, or returns the whole header if both are unknown.
func (a UserAgent) Summary() string {
	switch {
	case a.BrowserName == "" && a.OSName == "":
		return Shorten(a.Raw)
	case a.BrowserName == "":
		return a.OSName
	case a.OSName == "":
		return a.BrowserName
	}
	return a.BrowserName + " on " + a.OSName
}

// Country returns the code of the country, "" where it is not known.
func (l *Location) Country() string {
	if l == nil || l.CountryCode == nil {
		return ""
	}
	return *l.CountryCode
}

// differs reports whether both countries are known and not the same.
func (l *Location) differs(other *Location) bool {
	a, b := l.Country(), other.Country()
	return a != "" && b != "" && a != b
}
