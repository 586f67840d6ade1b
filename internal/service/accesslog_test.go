// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/service/servicetest"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// accessLogLines waits until the file has so many lines, and returns them.
func accessLogLines(t *testing.T, file string, n int) []map[string]any {
	t.Helper()
	for deadline := time.Now().Add(servicetest.MaxWait); time.Now().Before(deadline); {
		b, err := os.ReadFile(file)
		if err != nil || strings.Count(string(b), "\n") < n {
			continue
		}
		var lines []map[string]any
		for line := range strings.Lines(string(b)) {
			var l map[string]any
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatalf("line %q: %v", line, err)
			}
			lines = append(lines, l)
		}
		return lines
	}
	t.Fatalf("%s did not get %d lines", file, n)
	return nil
}

func TestAccessLog_RecordsRequestsAndConnections(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "access.log")
	moved := make(chan os.Signal, 1)
	upstream := servicetest.ServeHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Set-Cookie", "c=answer-secret")
		_, _ = io.WriteString(w, "answer-secret")
	})
	p := servicetest.NewPathTo(t, servicetest.Start(t, func(o *service.Options) {
		o.AccessLog, o.ReopenAccessLog = file, moved
	}), upstream)
	ask := func(way string) {
		t.Helper()
		header := http.Header{"Authorization": {"Bearer request-secret"}, "Cookie": {"request-secret"},
			"Traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}
		_ = servicetest.ReadAll(t, p.Forwarder.Do(p.Transport, "POST", "http://hello.demo"+way,
			strings.NewReader("request-secret"),
			header).Body)
	}
	ask("/a%20b?token=request-secret")
	l := accessLogLines(t, file, 1)[0]
	for name, want := range map[string]any{
		"endpoint": p.Bound.EndpointID, "client_ip": "10.1.2.3", "operator": p.OperatorID, "method": "POST",
		"host": "hello.demo", "path": "/a%20b", "status": 200.0,
		"bytes_in": 14.0, "bytes_out": 13.0, "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
	} {
		if l[name] != want {
			t.Errorf("%s is %v, not %v", name, l[name], want)
		}
	}
	began, err := time.Parse(time.RFC3339Nano, l["time"].(string))
	if err != nil || time.Since(began) > servicetest.MaxWait || l["account"] == "" || l["duration_ms"].(float64) <= 0 ||
		l["code"] != nil {
		t.Errorf("line %v, %v", l, err)
	}

	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	moved <- syscall.SIGHUP
	for deadline := time.Now().Add(servicetest.MaxWait); ; {
		if _, err := os.Stat(file); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the file was not opened anew")
		}
	}
	p.Agent.Stop()
	ask("/after")
	if l := accessLogLines(t, file, 1); len(l) != 1 || l[0]["path"] != "/after" || l[0]["status"] != 503.0 ||
		l[0]["code"] != "ERR_FL_3001" {
		t.Errorf("in the new file: %v", l)
	}
	if err := p.StopAndWait(); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{file, file + ".1"} {
		if b, err := os.ReadFile(f); err != nil || strings.Contains(string(b), "secret") {
			t.Errorf("%s: %v\n%s", f, err, b)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm()&0o007 != 0 {
		t.Errorf("everybody may read the log: %v %v", info.Mode(), err)
	}
}

// Errors are logged whatever the sample; a connection has a line, too; and a stop loses none.
func TestAccessLog_Samples(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "access.log")
	echo := servicetest.ServeTCP(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	p := servicetest.NewPathTo(t, servicetest.Start(t, func(o *service.Options) {
		o.AccessLog, o.AccessLogSample = file, 0
	}), echo, func(b *tunnel.Bind) {
		b.URL, b.UpstreamURL, b.UpstreamProtocol = "tcp://db.demo:5432", "tcp://"+echo, ""
	})
	st := p.Forwarder.Open(servicetest.OpenHeader(t, p.Bound))
	_, _ = io.WriteString(st, "question")
	_ = st.CloseWrite()
	_ = servicetest.ReadAll(t, st)
	checkCounted(p, `fairlead_server_endpoint_connections_total{endpoint="ID"} 1`,
		`fairlead_server_access_log_dropped_total 0`)
	p.Agent.Stop()
	p.Forwarder.OpenRefused(servicetest.OpenHeader(t, p.Bound))
	if err := p.StopAndWait(); err != nil {
		t.Fatal(err)
	}
	if l := accessLogLines(t, file, 1); len(l) != 1 || l[0]["code"] != "ERR_FL_3001" || l[0]["status"] != nil ||
		l[0]["method"] != nil {
		t.Errorf("lines %v", l)
	}
}
