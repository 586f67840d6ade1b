// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/printable"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

var update = flag.Bool("update", false, "write the golden frames")

var (
	web   = agent.EndpointInfo{URL: "http://web.demo", Upstream: "http://localhost:8080"}
	db    = agent.EndpointInfo{Key: "1", URL: "tcp://orders.db:5432", Upstream: "tcp://db.intern:5432"}
	group = agent.EndpointInfo{Key: "2", Labels: "app=api site=a", Upstream: "tcp://localhost:9000"}
)

// threeReplicas is the first report of a session with them.
var threeReplicas = agent.Replicas{Connected: 3, Wanted: 3, Found: []string{"rp-1", "rp-2", "rp-3"}}

// modelOf applies events that came a second apart, the last one at noon.
func modelOf(events ...agent.Event) *model {
	m := &model{}
	for i, e := range events {
		m.apply(e, noon().Add(time.Duration(i+1-len(events))*time.Second))
	}
	return m
}

func connected(targets ...agent.EndpointInfo) []agent.Event {
	events := []agent.Event{
		agent.Starting{Version: "0.1.0", Server: "https://fairlead.example.net:8443", Endpoints: targets},
		agent.Connected{SessionID: "ts-1", Server: "https://fairlead.example.net:8443", ServerVersion: "0.1.0",
			AccountID: "ac-1", Region: "home"},
		agent.Latency{RoundTrip: 12345 * time.Microsecond},
	}
	for _, t := range targets {
		events = append(events, agent.Online{EndpointInfo: t, EndpointID: "ep-1"})
	}
	return events
}

func busy() []agent.Event {
	events := connected(web, db, group)
	for i, path := range []string{"/", "/a/long/path/with/a?query=that+goes+on+and+on+and+on+and+on&page=12",
		"/日本語のパス/とても長い/とても長い/とても長い/パス", "/\x1b[2J\u202eevil\r\n"} {
		events = append(events, agent.Connection{EndpointInfo: web, HTTP: true, Client: "10.0.0.5:1"},
			agent.Request{EndpointInfo: web, Method: []string{"GET", "POST", "OPTIONS", "\x1b[31mX"}[i], Path: path,
				Status: 200 + 101*i, Duration: time.Duration(1+i*i*400) * time.Millisecond})
	}
	return append(events,
		agent.Connection{EndpointInfo: web, HTTP: true, Client: "10.0.0.5:1", Ended: true, Duration: time.Hour},
		agent.Connection{EndpointInfo: db, Client: "10.0.0.5:4242", Pod: "demo/client"},
		agent.Connection{EndpointInfo: db, Client: "10.0.0.5:4242", Pod: "demo/client", Ended: true, BytesIn: 12,
			BytesOut: 3456789,
			Duration: 2 * time.Second},
		agent.Connection{EndpointInfo: group, Client: "10.0.0.6:4242", Ended: true, Refused: true,
			Cause: "connection refused"},
		agent.UpstreamDown{EndpointInfo: group, Cause: "connection refused"},
		agent.BindRefused{EndpointInfo: db,
			Cause: "tcp://orders.db:5432 is taken by tunnel session ts-9 from 10.1.2.3 since 09:00; stop that agent"},
	)
}

var shop = agent.EndpointInfo{URL: "http://shop.example.com", Upstream: "http://localhost:3000"}

// publicEvents are of an endpoint that is reached at two addresses, and not yet known to DNS.
func publicEvents() []agent.Event {
	return []agent.Event{
		agent.Online{EndpointInfo: shop, EndpointID: "ep-1", SessionID: "ts-1", Server: "https://s:8443",
			AssignedURL: shop.URL, ListenerURL: shop.URL + ":8080"},
		agent.Unreachable{EndpointInfo: shop, Cause: "shop.example.com does not resolve",
			Command: "curl -H 'Host: shop.example.com:8080' http://127.0.0.1:8080"},
	}
}

func TestFrame_Golden(t *testing.T) {
	t.Parallel()
	var crowd []agent.EndpointInfo
	for i := range 30 {
		crowd = append(crowd, agent.EndpointInfo{Key: strconv.Itoa(i), URL: fmt.Sprintf("http://service-%d.demo", i),
			Upstream: "http://localhost:8080"})
	}
	db, renewed := db, db
	db.SealKey, renewed.SealKey = "sha256/OLD", "sha256/NEW"
	lost := append(connected(web), agent.Retrying{Server: "https://fairlead.example.net:8443",
		Cause: "the connection was closed", RetryIn: 1500 * time.Millisecond, WasOnline: true})
	for name, c := range map[string]struct {
		events        []agent.Event
		columns, rows int
		color         bool
	}{
		"starting": {[]agent.Event{agent.Starting{Version: "0.1.0", Server: "https://fairlead.example.net:8443",
			Endpoints: []agent.EndpointInfo{web}}}, 80, 24, false},
		"one": {append(connected(web), agent.Request{EndpointInfo: web, Method: "GET", Path: "/", Status: 200,
			Duration: time.Millisecond}), 80, 24, false},
		"busy":         {busy(), 120, 24, false},
		"busy-80":      {busy(), 80, 24, false},
		"busy-colour":  {busy(), 120, 24, true},
		"narrow":       {busy(), 34, 24, false},
		"tiny":         {busy(), 5, 4, false},
		"reconnecting": {lost, 80, 24, false},
		"draining":     {append(connected(web), agent.Draining{}), 80, 24, false},
		"replicas":     {append(connected(web), threeReplicas), 80, 24, false},
		"replica-lost": {append(connected(web), threeReplicas, agent.Replicas{Connected: 2, Wanted: 3,
			Lost: []string{"rp-2"}}), 120, 24, true},
		"crowd": {append(connected(crowd...), agent.BindRefused{EndpointInfo: crowd[29], Cause: "taken"},
			agent.BindRefused{EndpointInfo: crowd[0], Cause: "taken"}), 80, 24, false},
		"sealed": {append(connected(db), agent.SealProblem{EndpointInfo: db, Cause: "the certificate ends soon"},
			agent.Online{EndpointInfo: renewed, EndpointID: "ep-1", Reconnected: true}), 140, 24, false},
		"public":     {append(connected(shop), publicEvents()...), 80, 24, false},
		"crowd-wide": {connected(crowd...), 140, 50, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines := modelOf(c.events...).frame(c.columns, c.rows, c.color, noon())
			got := strings.Join(lines, "\n") + "\n"
			path := filepath.Join("testdata", name+".txt")
			if *update {
				must.Succeed(t, os.WriteFile(path, []byte(got), 0o600))
			}
			want, err := os.ReadFile(path)
			must.Succeed(t, err)
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if len(lines) > c.rows {
				t.Errorf("%d lines on a terminal of %d", len(lines), c.rows)
			}
			for _, line := range lines {
				if !c.color && (printable.Width(line) > max(c.columns, minColumns) ||
					strings.ContainsAny(line, "\x1b\r\u202e")) {
					t.Errorf("%d columns of %d: %q", printable.Width(line), c.columns, line)
				}
			}
		})
	}
}

func TestFrame_ShowsPresentCarrier(t *testing.T) {
	t.Parallel()
	events := connected(web)
	for _, name := range []string{tunnel.CarrierWebSocket, tunnel.ALPN} {
		events = append(events, agent.Latency{RoundTrip: time.Millisecond, Carrier: tunnel.Carrier{Name: name}})
		frame := strings.Join(modelOf(events...).frame(80, 24, false, noon()), "\n")
		if shown := strings.Contains(frame, "by WebSockets"); shown != (name == tunnel.CarrierWebSocket) {
			t.Errorf("%s: WebSockets are shown: %v", name, shown)
		}
	}
}

func TestEndpointRow_Statistics(t *testing.T) {
	t.Parallel()
	r := &row{}
	for i := range maxDurations + 50 {
		r.addDuration(time.Duration(i) * time.Millisecond)
	}
	p50, p90, ok := r.percentiles()
	if !ok || len(r.durations) != maxDurations || p50 != 177*time.Millisecond || p90 != 279*time.Millisecond {
		t.Errorf("p50 %v, p90 %v of %d", p50, p90, len(r.durations))
	}
	m := modelOf(busy()...)
	for i, want := range []string{"3 4", "0 1", "0 0"} {
		if got := fmt.Sprint(m.rows[i].open, " ", m.rows[i].total); got != want {
			t.Errorf("endpoint %d: open and total %s, want %s", i, got, want)
		}
	}
	for range 2 * maxRecent {
		m.apply(agent.Request{EndpointInfo: web}, noon())
	}
	if len(m.recent) != maxRecent {
		t.Errorf("%d recent events are kept", len(m.recent))
	}
	m.apply(agent.Request{EndpointInfo: agent.EndpointInfo{Key: "99"}}, noon()) // no such endpoint: no panic
}

func TestFrame_NamesInspector(t *testing.T) {
	t.Parallel()
	m := modelOf(append(connected(web), agent.Inspecting{URL: "http://127.0.0.1:4040"})...)
	if got := strings.Join(m.frame(100, 30, false, noon()), "\n"); !strings.Contains(got,
		"\nInspector http://127.0.0.1:4040\n") {
		t.Errorf("got\n%s", got)
	}
}
