// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package geo

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/maxmind/mmdbwriter"
	"github.com/maxmind/mmdbwriter/mmdbtype"
	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// database returns the content of a database file with records by network.
func database(t *testing.T, kind string, records map[string]mmdbtype.Map) []byte {
	t.Helper()
	w, err := mmdbwriter.New(mmdbwriter.Options{DatabaseType: kind, RecordSize: 24, IncludeReservedNetworks: true})
	must.Succeed(t, err)
	for cidr, record := range records {
		_, network, err := net.ParseCIDR(cidr)
		must.Succeed(t, err)
		must.Succeed(t, w.Insert(network, record))
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func write(t *testing.T, path string, b []byte) string {
	t.Helper()
	must.Succeed(t, os.WriteFile(path+".new", b, 0o600))
	must.Succeed(t, os.Rename(path+".new", path))
	return path
}

// named returns a record with names in two languages.
func named(en string) mmdbtype.Map {
	return mmdbtype.Map{"names": mmdbtype.Map{"en": mmdbtype.String(en), "de": mmdbtype.String("anders")}}
}

// nested returns a database in MaxMind's layout.
func nested(t *testing.T) []byte {
	country := named("United States")
	country["iso_code"] = mmdbtype.String("US")
	return database(t, "GeoLite2-City", map[string]mmdbtype.Map{
		"203.0.113.0/24": {"country": country, "city": named("San Francisco"),
			"subdivisions": mmdbtype.Slice{named("California")},
			"location": mmdbtype.Map{"latitude": mmdbtype.Float64(37.77), "longitude": mmdbtype.Float64(-122.42),
				"accuracy_radius": mmdbtype.Uint16(5)}},
		"2001:db8::/32": {"country": country},
		"198.51.100.0/25": {"country": mmdbtype.Map{"iso_code": mmdbtype.String("usa")},
			"location": mmdbtype.Map{"latitude": mmdbtype.Float64(91), "longitude": mmdbtype.Float64(0)}},
	})
}

// formatLocation returns a Location as text.
func formatLocation(p Location) string {
	s := fmt.Sprintf("%s/%s/%s/%s", p.CountryCode, p.Country, p.Subdivision, p.City)
	if p.Latitude != nil {
		s += fmt.Sprintf(" %v,%v", *p.Latitude, *p.Longitude)
	}
	if p.RadiusKM != nil {
		s += fmt.Sprintf(" ±%d", *p.RadiusKM)
	}
	return fmt.Sprintf("%s AS%d %s", s, p.ASN, p.Organization)
}

func TestLookup_ReadsBothLayouts(t *testing.T) {
	t.Parallel()
	files := map[string][]byte{
		"nested": nested(t),
		"asn": database(t, "GeoLite2-ASN", map[string]mmdbtype.Map{"203.0.112.0/23": {
			"autonomous_system_number":       mmdbtype.Uint32(64500),
			"autonomous_system_organization": mmdbtype.String("Example\x1b[31m Net")}}),
		"flat": database(t, "flat", map[string]mmdbtype.Map{
			"203.0.113.0/24": {"country_code": mmdbtype.String("de"), "city": mmdbtype.String("Köln"),
				"latitude": mmdbtype.Float32(50.5), "longitude": mmdbtype.Float32(7), "region": mmdbtype.String("NRW"),
				"asn": mmdbtype.String("AS64501"), "as_name": mmdbtype.String("Flat Net")},
			"198.51.100.0/24": {"country": mmdbtype.String("FR"), "lat": mmdbtype.String("48.85"),
				"lng": mmdbtype.String("2.35")},
			"192.0.2.0/24": {"country": mmdbtype.String("France"), "latitude": mmdbtype.String("north"),
				"longitude": mmdbtype.Float64(1), "asn": mmdbtype.String("none")},
		}),
	}
	dir := t.TempDir()
	for name, b := range files {
		write(t, filepath.Join(dir, name), b)
	}
	for _, c := range []struct{ files, ip, want string }{
		{"nested", "203.0.113.9", "US/United States/California/San Francisco 37.77,-122.42 ±5 AS0 "},
		{"nested", "::ffff:203.0.113.9", "US/United States/California/San Francisco 37.77,-122.42 ±5 AS0 "},
		{"nested", "2001:db8::1", "US/United States// AS0 "},
		{"nested", "198.51.100.1", "/// AS0 "},
		{"nested", "192.0.2.1", "/// AS0 "},
		{"asn", "203.0.113.9", `/// AS64500 Example\x1b[31m Net`},
		{"nested asn", "203.0.113.9",
			`US/United States/California/San Francisco 37.77,-122.42 ±5 AS64500 Example\x1b[31m Net`},
		{"asn nested", "203.0.113.9",
			`US/United States/California/San Francisco 37.77,-122.42 ±5 AS64500 Example\x1b[31m Net`},
		{"flat", "203.0.113.9", "DE//NRW/Köln 50.5,7 AS64501 Flat Net"},
		{"flat", "198.51.100.1", "FR/// 48.85,2.35 AS0 "},
		{"flat", "192.0.2.1", "/France// AS0 "},
		{"nested flat", "203.0.113.9", "US/United States/California/San Francisco 37.77,-122.42 ±5 AS64501 Flat Net"},
		{"nested flat", "198.51.100.1", "FR/// 48.85,2.35 AS0 "},
	} {
		paths := strings.Fields(c.files)
		for i := range paths {
			paths[i] = filepath.Join(dir, paths[i])
		}
		d, err := Open(paths, slog.New(slog.DiscardHandler))
		must.Succeed(t, err)
		if got := formatLocation(d.Lookup(netip.MustParseAddr(c.ip))); got != c.want {
			t.Errorf("%s of %s:\n got %q\nwant %q", c.ip, c.files, got, c.want)
		}
	}
	var none *Databases
	if none.Lookup(netip.MustParseAddr("203.0.113.9")) != (Location{}) {
		t.Error("a location without a database")
	}
}

func TestOpen_RefusesBadFiles(t *testing.T) {
	t.Parallel()
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	whole := nested(t)
	large := filepath.Join(dir, "large")
	if f, err := os.Create(large); err != nil || f.Truncate(maxFile+1) != nil || f.Close() != nil { // sparse
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "absent"): "no such file",
		dir:                          "not a regular file",
		write(t, filepath.Join(dir, "empty"), nil):                             "not in MaxMind's format",
		write(t, filepath.Join(dir, "text"), []byte("<html>not found</html>")): "not in MaxMind's format",
		write(t, filepath.Join(dir, "half"), whole[:len(whole)/2]):             "not in MaxMind's format",
		large: "at most",
	} {
		if _, err := Open([]string{path}, log); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestDatabases_ReloadChangedFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "city.mmdb")
	write(t, path, nested(t))
	var log bytes.Buffer
	d, err := Open([]string{path}, slog.New(slog.NewTextHandler(&log, nil)))
	must.Succeed(t, err)
	ip := netip.MustParseAddr("203.0.113.9")
	clock := time.Now()
	for _, step := range []struct {
		name    string
		content []byte // nil = the file is gone
		country string
		lines   int // in the log, in all
	}{
		{"unchanged", nested(t), "US", 0},
		{"broken", []byte("half a file"), "US", 1},
		{"gone", nil, "US", 2},
		{"new", database(t, "x", map[string]mmdbtype.Map{"203.0.113.0/24": {"country_code": mmdbtype.String("NL")}}),
			"NL",
			3},
		{"broken again", []byte("half a file"), "NL", 4},
	} {
		clock = clock.Add(time.Minute)
		if step.content == nil {
			_ = os.Remove(path)
		} else if step.name != "unchanged" {
			write(t, path, step.content)
			_ = os.Chtimes(path, clock, clock) // whatever the file system's clock can tell apart
		}
		d.refresh()
		d.refresh() // logs the same only once
		if got := d.Lookup(ip).CountryCode; got != step.country {
			t.Errorf("%s: %q, want %q", step.name, got, step.country)
		}
		if n := strings.Count(log.String(), "\n"); n != step.lines {
			t.Errorf("%s: %d lines in the log, want %d:\n%s", step.name, n, step.lines, &log)
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	t := &testing.T{}
	path := write(t, filepath.Join(b.TempDir(), "city.mmdb"), nested(t))
	d, err := Open([]string{path}, slog.New(slog.DiscardHandler))
	must.Succeed(b, err)
	ip := netip.MustParseAddr("203.0.113.9")
	b.ReportAllocs()
	for b.Loop() {
		d.Lookup(ip)
	}
}
