// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func noon() time.Time { return time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) }

// eventOutput is an event, the text that people read, and the JSON that programs read: what stands
// between jsonTime and the closing brace.
type eventOutput struct {
	event      agent.Event
	text, json string
}

// jsonTime begins every line of JSON.
const jsonTime = `{"time":"2026-11-20T12:00:00Z",`

var (
	helloEndpoint = agent.EndpointInfo{URL: "http://hello.demo", Upstream: "http://localhost:8080"}
	groupEndpoint = agent.EndpointInfo{Labels: "app=api site=a", Upstream: "tcp://localhost:5432"}
)

var startEvents = []eventOutput{
	{agent.Starting{Version: "0.1.0", Server: "https://s:8443", Endpoints: []agent.EndpointInfo{helloEndpoint}},
		"fairlead 0.1.0\n",
		`"level":"info","event":"starting","version":"0.1.0","server":"https://s:8443",` +
			`"url":"http://hello.demo","upstream":"http://localhost:8080"`},
	{agent.Inspecting{URL: "http://127.0.0.1:4040"}, "Inspector   http://127.0.0.1:4040\n",
		`"level":"info","event":"inspecting","inspector":"http://127.0.0.1:4040"`},
	{agent.Retrying{Server: "https://s:8443", Cause: "nothing listens there", RetryIn: time.Second},
		"12:00:00  cannot connect to https://s:8443: nothing listens there; trying again until it works\n",
		`"level":"warn","event":"connecting","server":"https://s:8443","cause":"nothing listens there",` +
			`"retry_in_seconds":1`},
	{agent.Connected{SessionID: "ts-1", Server: "https://s:8443", ServerVersion: "0.1.0", AccountID: "ac-1",
		Region: "home"},
		"",
		`"level":"info","event":"connected","server":"https://s:8443","server_version":"0.1.0",` +
			`"account_id":"ac-1","region":"home","session_id":"ts-1"`},
	{agent.Connected{SessionID: "ts-1", Server: "https://s:8443",
		Carrier: tunnel.Carrier{Name: tunnel.CarrierWebSocket, Reason: "native connections are cut"}},
		"12:00:00  connected by WebSockets, which cost more: native connections are cut\n",
		`"level":"info","event":"connected","server":"https://s:8443","session_id":"ts-1",` +
			`"cause":"native connections are cut","carrier":"websocket"`},
	{agent.Online{EndpointID: "ep-1", EndpointInfo: helloEndpoint, SessionID: "ts-1", Server: "https://s:8443",
		ServerVersion: "0.1.0"},
		"Endpoint    http://hello.demo (ep-1)\nForwarding  to http://localhost:8080\nSession     ts-1 with " +
			"https://s:8443: online\n",
		`"level":"info","event":"online","server":"https://s:8443","server_version":"0.1.0",` +
			`"url":"http://hello.demo","upstream":"http://localhost:8080","endpoint_id":"ep-1",` +
			`"session_id":"ts-1","again":false`},
}

var replicaEvents = []eventOutput{
	{agent.Replicas{Connected: 2, Wanted: 2, Found: []string{"rp-1", "rp-2"}},
		"12:00:00  connected to 2 of 2 replicas\n",
		`"level":"info","event":"replicas","replicas":2,"replicas_wanted":2,"replicas_found":["rp-1","rp-2"]`},
	{agent.Replicas{Connected: 1, Wanted: 3, Found: []string{"rp-3"}, Draining: []string{"rp-2"},
		Lost: []string{"rp-1\x1b[2J"}},
		"12:00:00  connected to 1 of 3 replicas; lost rp-1\\x1b[2J; rp-2 is about to stop; found rp-3\n",
		`"level":"info","event":"replicas","replicas":1,"replicas_wanted":3,"replicas_found":["rp-3"],` +
			`"replicas_draining":["rp-2"],"replicas_lost":["rp-1\u001b[2J"]`},
	{agent.Replicas{Wanted: 1, Lost: []string{"rp-3"}},
		"12:00:00  connected to 0 of 1 replica; lost rp-3\n",
		`"level":"info","event":"replicas","replicas":0,"replicas_wanted":1,"replicas_lost":["rp-3"]`},
}

var trafficEvents = []eventOutput{
	{agent.UpstreamDown{EndpointInfo: helloEndpoint, Cause: "connection refused", HTTP: true},
		"12:00:00  upstream unreachable: http://localhost:8080: connection refused; callers get a 502 until it " +
			"answers\n",
		`"level":"warn","event":"upstream_down","url":"http://hello.demo","upstream":"http://localhost:8080",` +
			`"cause":"connection refused"`},
	{agent.UpstreamDown{EndpointInfo: groupEndpoint, Cause: "no answer in time"},
		"12:00:00  upstream unreachable: tcp://localhost:5432: no answer in time; " +
			"callers' connections are closed until it answers\n",
		`"level":"warn","event":"upstream_down","labels":"app=api site=a","upstream":"tcp://localhost:5432",` +
			`"cause":"no answer in time"`},
	{agent.HostRefused{EndpointInfo: helloEndpoint},
		"12:00:00  host refused: http://localhost:8080 does not accept the Host of http://hello.demo; start the agent " +
			"with --host-header rewrite\n",
		`"level":"warn","event":"host_refused","url":"http://hello.demo","upstream":"http://localhost:8080",` +
			`"command":"--host-header rewrite"`},
	{agent.UpstreamUp{EndpointInfo: helloEndpoint},
		"12:00:00  upstream reachable: http://localhost:8080\n",
		`"level":"info","event":"upstream_up","url":"http://hello.demo","upstream":"http://localhost:8080"`},
	{agent.Request{EndpointInfo: helloEndpoint, Method: "GET", Path: "/a?b=c", Status: 200,
		Duration: 12345 * time.Microsecond},
		"12:00:00  GET     /a?b=c                           200  12ms\n",
		`"level":"info","event":"request","url":"http://hello.demo","method":"GET","path":"/a?b=c",` +
			`"status":200,"duration_seconds":0.012345`},
	{agent.Connection{EndpointInfo: helloEndpoint, HTTP: true, Client: "10.0.0.5:4242"}, "", ""},
	{agent.Latency{RoundTrip: time.Second}, "", ""},
	{agent.Connection{EndpointInfo: groupEndpoint, Client: "10.0.0.5:4242", Pod: "demo/client"},
		"12:00:00  open    demo/client (10.0.0.5:4242)\n",
		`"level":"info","event":"connection_open","labels":"app=api site=a","client":"10.0.0.5:4242",` +
			`"pod":"demo/client"`},
	{agent.Connection{Client: "10.0.0.5:4242", Ended: true, BytesIn: 12, BytesOut: 3456789,
		Duration: 2 * time.Second,
		Cause:    "reset"},
		"12:00:00  closed  10.0.0.5:4242  12 B in, 3.5 MB out  2s  reset\n",
		`"level":"info","event":"connection_closed","cause":"reset","duration_seconds":2,` +
			`"client":"10.0.0.5:4242","bytes_in":12,"bytes_out":3456789`},
}

var sealedEndpoint = agent.EndpointInfo{URL: "tcp://db.demo:5432", SealKey: "sha256/AAAA"}

var sealEvents = []eventOutput{
	{agent.SealProblem{EndpointInfo: sealedEndpoint, Cause: "the certificate\nends"},
		"12:00:00  seal: tcp://db.demo:5432: the certificate\\nends\n",
		`"level":"warn","event":"seal_problem","url":"tcp://db.demo:5432","seal_key":"sha256/AAAA",` +
			`"cause":"the certificate\nends"`},
	{agent.SealProblem{EndpointInfo: sealedEndpoint},
		"12:00:00  seal: tcp://db.demo:5432: all is well again\n",
		`"level":"info","event":"seal_ok","url":"tcp://db.demo:5432","seal_key":"sha256/AAAA"`},
	{agent.Online{Reconnected: true, EndpointID: "ep-1", EndpointInfo: sealedEndpoint, SessionID: "ts-1"},
		"12:00:00  online again: tcp://db.demo:5432 (ep-1), session ts-1, sealed by the key sha256/AAAA\n",
		`"level":"info","event":"online","url":"tcp://db.demo:5432","seal_key":"sha256/AAAA","endpoint_id":"ep-1",` +
			`"session_id":"ts-1","again":true`},
	{agent.Connection{EndpointInfo: sealedEndpoint, Client: "10.0.0.5:4242", Pod: "demo/client", Caller: "cluster-1"},
		"12:00:00  open    demo/client (10.0.0.5:4242) of cluster-1\n",
		`"level":"info","event":"connection_open","url":"tcp://db.demo:5432","client":"10.0.0.5:4242",` +
			`"pod":"demo/client","caller":"cluster-1"`},
	{agent.Connection{EndpointInfo: sealedEndpoint, Client: "10.0.0.5:4242"},
		"12:00:00  open    10.0.0.5:4242, caller not proven\n",
		`"level":"info","event":"connection_open","url":"tcp://db.demo:5432","client":"10.0.0.5:4242","caller":""`},
}

var lossAndStopEvents = []eventOutput{
	{agent.Retrying{Server: "https://s:8443", Cause: "the connection was closed", RetryIn: 1234 * time.Millisecond,
		WasOnline: true},
		"12:00:00  reconnecting in 1.2 s: the connection was closed\n",
		`"level":"warn","event":"reconnecting","server":"https://s:8443","cause":"the connection was closed",` +
			`"retry_in_seconds":1.234`},
	{agent.Retrying{Server: "https://s:8443", Cause: "no rule", WasOnline: true},
		"12:00:00  reconnecting: no rule\n",
		`"level":"warn","event":"reconnecting","server":"https://s:8443","cause":"no rule","retry_in_seconds":0`},
	{agent.Draining{Server: "https://s:8443"},
		"12:00:00  draining: https://s:8443 is about to stop; connecting anew\n",
		`"level":"info","event":"draining","server":"https://s:8443"`},
	{agent.Online{Reconnected: true, EndpointID: "ep-1", EndpointInfo: agent.EndpointInfo{URL: "http://hello.demo"},
		SessionID: "ts-2",
		Server:    "https://s:8443"},
		"12:00:00  online again: http://hello.demo (ep-1), session ts-2\n",
		`"level":"info","event":"online","server":"https://s:8443","url":"http://hello.demo",` +
			`"endpoint_id":"ep-1","session_id":"ts-2","again":true`},
	{agent.Stopping{Connections: 3, Timeout: 3 * time.Second},
		"12:00:00  stopping: 3 connections may finish within 3.0 s; Ctrl-C again ends at once\n",
		`"level":"info","event":"stopping","connections":3`},
	{agent.Stopping{Connections: 1, Timeout: 3 * time.Second},
		"12:00:00  stopping: 1 connection may finish within 3.0 s; Ctrl-C again ends at once\n",
		`"level":"info","event":"stopping","connections":1`},
	{agent.Stopped{ServerTold: true}, "12:00:00  stopped\n", `"level":"info","event":"stopped","server_told":true`},
	{agent.Stopped{},
		"12:00:00  stopped, but the server could not be told: it keeps the endpoint, offline, for the grace " +
			"period\n",
		`"level":"warn","event":"stopped","server_told":false`},
}

// callEvents are those of `fairlead connect`.
var callEvents = []eventOutput{
	{agent.Listening{URL: "http://api.demo", Address: "http://127.0.0.1:8080"},
		"Listening   http://127.0.0.1:8080 -> http://api.demo\n",
		`"level":"info","event":"listening","url":"http://api.demo","address":"http://127.0.0.1:8080"`},
	{agent.Connected{SessionID: "ts-1", Server: "https://s:8443"},
		"12:00:00  connected to https://s:8443, session ts-1\n",
		`"level":"info","event":"connected","server":"https://s:8443","session_id":"ts-1"`},
	{agent.CallFailed{URL: "tcp://db.demo:1", Cause: "The endpoint tcp://db.demo:1 is offline."},
		"12:00:00  call failed: The endpoint tcp://db.demo:1 is offline.\n",
		`"level":"warn","event":"call_failed","url":"tcp://db.demo:1",` +
			`"cause":"The endpoint tcp://db.demo:1 is offline."`},
}

func TestScreen_RendersEveryEvent(t *testing.T) {
	t.Parallel()
	var wantText, wantJSON string
	var asText, asJSON bytes.Buffer
	text := New(&asText, Options{Now: noon})
	lines := New(&asJSON, Options{JSON: true, Now: noon})
	for _, s := range slices.Concat(startEvents, replicaEvents, trafficEvents, sealEvents, lossAndStopEvents, callEvents) {
		text.Observe(s.event)
		lines.Observe(s.event)
		wantText += s.text
		if s.json != "" {
			wantJSON += jsonTime + s.json + "}\n"
		}
	}
	text.Close()
	lines.Close()
	if diff := cmp.Diff(wantText, asText.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantJSON, asJSON.String()); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

func TestScreen_NamesPublicAddresses(t *testing.T) {
	t.Parallel()
	var asText, asJSON bytes.Buffer
	text, lines := New(&asText, Options{Now: noon}), New(&asJSON, Options{JSON: true, Now: noon})
	for _, e := range append([]agent.Event{agent.Starting{Version: "0.1.0"}}, publicEvents()...) {
		text.Observe(e)
		lines.Observe(e)
	}
	text.Close()
	lines.Close()
	want := `fairlead 0.1.0
Endpoint    http://shop.example.com (ep-1)
Also at     http://shop.example.com:8080, where the service listens
Forwarding  to http://localhost:3000
Session     ts-1 with https://s:8443: online
12:00:00  may be out of reach: http://shop.example.com: shop.example.com does not resolve; ` +
		"try: curl -H 'Host: shop.example.com:8080' http://127.0.0.1:8080\n"
	if diff := cmp.Diff(want, asText.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	for _, want := range []string{`"listener_url":"http://shop.example.com:8080"`,
		`"level":"warn","event":"unreachable","url":"http://shop.example.com",` +
			`"cause":"shop.example.com does not resolve","command":"curl -H 'Host: `} {
		if !strings.Contains(asJSON.String(), want) {
			t.Errorf("no %s in %s", want, asJSON.String())
		}
	}
}

func TestScreen_NamesOneOfSeveralEndpoints(t *testing.T) {
	t.Parallel()
	web := agent.EndpointInfo{URL: "http://web.demo", Upstream: "http://localhost:8080"}
	group := agent.EndpointInfo{Key: "1", Labels: "app=api site=a", Upstream: "tcp://localhost:5432"}
	var asText, asJSON bytes.Buffer
	text, lines := New(&asText, Options{Now: noon}), New(&asJSON, Options{JSON: true, Now: noon})
	for _, e := range []agent.Event{
		agent.Starting{Version: "0.1.0", Server: "https://s:8443", Endpoints: []agent.EndpointInfo{web, group}},
		agent.Connected{SessionID: "ts-1", Server: "https://s:8443"},
		agent.Online{EndpointInfo: group, EndpointID: "tn-1", SessionID: "ts-1"},
		agent.BindRefused{EndpointInfo: web, Cause: "it is taken by ts-9"},
		agent.Request{EndpointInfo: web, Method: "GET", Path: "/", Status: 200, Duration: time.Second},
		agent.Connection{EndpointInfo: group, Client: "10.0.0.5:4242"},
		agent.Stopped{},
	} {
		text.Observe(e)
		lines.Observe(e)
	}
	text.Close()
	lines.Close()
	want := `fairlead 0.1.0
12:00:00  connected to https://s:8443, session ts-1
12:00:00  online: app=api site=a (tn-1), forwarding to tcp://localhost:5432
12:00:00  refused: http://web.demo: it is taken by ts-9; the others go on, and this one is tried again
12:00:00  GET     /                                200  1s  http://web.demo
12:00:00  open    10.0.0.5:4242  app=api site=a
12:00:00  stopped, but the server could not be told: it keeps the endpoints, offline, for the grace period
`
	if diff := cmp.Diff(want, asText.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	first, _, _ := strings.Cut(asJSON.String(), "\n")
	if !strings.HasSuffix(first,
		`"endpoints":[{"url":"http://web.demo","upstream":"http://localhost:8080"},{"labels":"app=api site=a","upstream":"tcp://localhost:5432"}]}`) {
		t.Errorf("first line %s", first)
	}
}

func TestScreen_EscapesControlCharacters(t *testing.T) {
	t.Parallel()
	const evil = "/\x1b]0;owned\a\x1b[2J\r\n12:00:00  GET /fake\u202e\u009b\xff"
	for name, e := range map[string]agent.Event{
		"request":     agent.Request{Method: evil, Path: evil, Status: 200},
		"connection":  agent.Connection{Client: evil, Pod: evil, Ended: true, Cause: evil},
		"retrying":    agent.Retrying{Cause: evil, WasOnline: true},
		"connecting":  agent.Retrying{Cause: evil},
		"unreachable": agent.Unreachable{Cause: evil, Command: evil, EndpointInfo: agent.EndpointInfo{URL: evil}},
		"online": agent.Online{ListenerURL: evil, EndpointID: evil, SessionID: evil,
			EndpointInfo: agent.EndpointInfo{URL: evil}},
		"again": agent.Online{Reconnected: true, EndpointID: evil, SessionID: evil,
			EndpointInfo: agent.EndpointInfo{Labels: evil}},
		"upstream": agent.UpstreamDown{Cause: evil},
		"refused":  agent.BindRefused{EndpointInfo: agent.EndpointInfo{URL: evil}, Cause: evil},
	} {
		for _, asJSON := range []bool{false, true} {
			var out bytes.Buffer
			s := New(&out, Options{Now: noon, JSON: asJSON})
			s.Observe(e)
			s.Close()
			lines := strings.Count(out.String(), "\n")
			want := 1
			if name == "online" && !asJSON {
				want = 4
			}
			if lines != want {
				t.Errorf("%s: %d lines: %q", name, lines, out.String())
			}
			if strings.ContainsAny(out.String(), "\x1b\a\r\u202e\u009b") {
				t.Errorf("%s: a control character came through: %q", name, out.String())
			}
		}
	}
	if got := Escape(strings.Repeat("x", 5000)); len(got) > 400 {
		t.Errorf("a text of 5000 characters became one of %d", len(got))
	}
}

func TestScreen_ColorOnlyWithOption(t *testing.T) {
	t.Parallel()
	for _, color := range []bool{false, true} {
		var out bytes.Buffer
		s := New(&out, Options{Now: noon, Color: color})
		s.Observe(agent.Request{Method: "GET", Path: "/", Status: 502})
		s.Close()
		if got := strings.Contains(out.String(), "\x1b[31m502\x1b[0m"); got != color {
			t.Errorf("colour %v: %q", color, out.String())
		}
	}
}

func TestScreen_LevelHidesLowerEvents(t *testing.T) {
	t.Parallel()
	for level, want := range map[slog.Level]int{slog.LevelDebug: 3, slog.LevelInfo: 3, slog.LevelWarn: 2,
		slog.LevelError: 0} {
		var out bytes.Buffer
		s := New(&out, Options{Now: noon, Level: level})
		s.Observe(agent.Request{Method: "GET", Path: "/", Status: 200})
		s.Observe(agent.Retrying{Cause: "x"})
		s.Observe(agent.Stopped{ServerTold: false})
		s.Close()
		if got := strings.Count(out.String(), "\n"); got != want {
			t.Errorf("level %v: %d lines, want %d", level, got, want)
		}
	}
}
