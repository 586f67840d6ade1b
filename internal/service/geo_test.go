// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/maxmind/mmdbwriter"
	"github.com/maxmind/mmdbwriter/mmdbtype"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// geoDatabase writes a database with the location of one network and returns its path.
func geoDatabase(t *testing.T, cidr string) string {
	t.Helper()
	w, err := mmdbwriter.New(mmdbwriter.Options{DatabaseType: "test", RecordSize: 24, IncludeReservedNetworks: true})
	must.Succeed(t, err)
	_, network, err := net.ParseCIDR(cidr)
	must.Succeed(t, err)
	record := mmdbtype.Map{"country_code": mmdbtype.String("NL"), "city": mmdbtype.String("Utrecht"),
		"latitude": mmdbtype.Float64(52.09), "longitude": mmdbtype.Float64(5.12), "asn": mmdbtype.Uint32(64500)}
	must.Succeed(t, w.Insert(network, record))
	path := filepath.Join(t.TempDir(), "geo.mmdb")
	f, err := os.Create(path)
	must.Succeed(t, err)
	if _, err := w.WriteTo(f); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	return path
}

func TestGeo_IsKnownToPoliciesAndDevices(t *testing.T) {
	t.Parallel()
	const policy = `on_http_request:
- expressions: ["conn.geo.country_code == 'NL'"]
  actions:
  - {type: custom-response, config: {body: "${conn.geo.city} ${conn.geo.latitude},${conn.geo.longitude}"}}
- actions:
  - {type: deny}
`
	path := geoDatabase(t, "203.0.113.0/24")
	w := servicetest.StartPublic(t, func(o *service.Options) {
		o.GeoIP, o.Public.TrustedProxies = []string{path}, []string{"127.0.0.1"}
	})
	w.Tenant().Cloud("public", "http://app.example.com", policy, "")
	for ip, want := range map[string]string{"203.0.113.9": "Utrecht 52.09,5.12", "198.51.100.9": ""} {
		r, err := http.NewRequestWithContext(servicetest.Context(t), "GET", "http://app.example.com/", nil)
		must.Succeed(t, err)
		r.Header.Set("X-Forwarded-For", ip)
		res, err := w.NewBrowser().Do(r)
		must.Succeed(t, err)
		if got := servicetest.ReadAll(t, res.Body); want != "" && got != want || want == "" && res.StatusCode != 403 {
			t.Errorf("%s: %d %q", ip, res.StatusCode, got)
		}
		_ = res.Body.Close()
	}

	r, _ := http.NewRequestWithContext(t.Context(), "GET", "http://x/", nil)
	r.Header.Set("User-Agent", "curl/8.5.0")
	d, err := service.DeviceOf(service.Options{GeoIP: []string{path}}, r, netip.MustParseAddr("203.0.113.9"))
	must.Succeed(t, err)
	if d.IPAddress != "203.0.113.9" || d.UserAgent.BrowserName != "curl" || d.Location == nil ||
		*d.Location.CountryCode != "NL" || *d.Network != (account.Network{ASN: 64500}) {
		t.Errorf("the device: %+v", d)
	}
	unknown, err := service.DeviceOf(service.Options{}, r, netip.MustParseAddr("203.0.113.9"))
	if err != nil || unknown.Location != nil || unknown.Network != nil ||
		service.KnowsLocation(netip.MustParseAddr("203.0.113.9")) {
		t.Errorf("without a database: %+v, %v", unknown, err)
	}
}
