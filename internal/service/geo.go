// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/device"
	"github.com/fairlead-dev/fairlead/internal/service/geo"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// openGeo opens the location databases.
func (s *service) openGeo() error {
	if len(s.opt.GeoIP) == 0 {
		return nil
	}
	var err error
	if s.geo, err = geo.Open(s.opt.GeoIP, s.log); err != nil {
		return fmt.Errorf("--geoip-database: %w", err)
	}
	return nil
}

// startGeo starts to reload location databases that change.
func (s *service) startGeo(serving context.Context) {
	if s.geo != nil {
		s.tasks.Go(func() { s.geo.Run(serving) })
	}
}

// geoLookup returns a function that looks up the address's location for traffic policies; nil
// without location databases.
func (s *service) geoLookup(ip netip.Addr) func() trafficpolicy.Geo {
	if s.geo == nil || !ip.IsValid() {
		return nil
	}
	return func() trafficpolicy.Geo {
		p := s.geo.Lookup(ip)
		g := trafficpolicy.Geo{City: p.City, Country: p.Country, CountryCode: p.CountryCode, Subdivision: p.Subdivision}
		if p.Latitude != nil && p.Longitude != nil {
			g.Latitude, g.Longitude = decimal(*p.Latitude), decimal(*p.Longitude)
		}
		if p.RadiusKM != nil {
			g.Radius = strconv.Itoa(*p.RadiusKM)
		}
		return g
	}
}

func decimal(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// deviceOf returns the device of a request that logs in.
func (s *service) deviceOf(r *http.Request, ip netip.Addr) account.Device {
	return device.FromRequest(r, ip, s.geo.Lookup(ip))
}
