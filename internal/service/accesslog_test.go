// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// accessLogLines waits until the file has so many lines, and returns them.
func accessLogLines(t *testing.T, file string, n int) []map[string]any {
	t.Helper()
	var content []byte
	servicetest.Eventually(t, fmt.Sprintf("%s has %d lines", file, n), func() bool {
		content, _ = os.ReadFile(file)
		return bytes.Count(content, []byte("\n")) >= n
	})
	var lines []map[string]any
	for line := range bytes.Lines(content) {
		var l map[string]any
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		lines = append(lines, l)
	}
	return lines
}

// secret is a text of requests and answers that must not be in the access log.
const secret = "do-not-log"

// startLoggedPath starts a service with an access log in the file, and a path to an upstream that
// answers with secret in header and body.
func startLoggedPath(t *testing.T, file string, reopen <-chan os.Signal) *servicetest.Path {
	t.Helper()
	upstream := servicetest.ServeHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Set-Cookie", "c="+secret)
		_, _ = io.WriteString(w, secret)
	})
	return servicetest.NewPathTo(t, servicetest.Start(t, func(o *service.Options) {
		o.AccessLog, o.ReopenAccessLog = file, reopen
	}), upstream)
}

// postSecrets posts secret in query, body and headers.
func postSecrets(p *servicetest.Path, path string) {
	p.T.Helper()
	header := http.Header{"Authorization": {"Bearer " + secret}, "Cookie": {secret}, "Traceparent": {clientParent}}
	_ = servicetest.ReadAll(p.T, p.Forwarder.Do(p.Transport, "POST", "http://hello.demo"+path+"?token="+secret,
		strings.NewReader(secret), header).Body)
}

func TestAccessLog_RecordsRequest(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "access.log")
	p := startLoggedPath(t, file, nil)
	postSecrets(p, "/a%20b")
	l := accessLogLines(t, file, 1)[0]
	for name, want := range map[string]any{
		"endpoint": p.Bound.EndpointID, "client_ip": "10.1.2.3", "operator": p.OperatorID, "method": "POST",
		"host": "hello.demo", "path": "/a%20b", "status": 200.0,
		"bytes_in": float64(len(secret)), "bytes_out": float64(len(secret)), "trace_id": clientTrace,
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
	must.Succeed(t, p.StopAndWait())
	checkAccessLogFile(t, file)
}

func TestAccessLog_ReopensFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "access.log")
	reopen := make(chan os.Signal, 1)
	p := startLoggedPath(t, file, reopen)
	postSecrets(p, "/before")
	accessLogLines(t, file, 1)
	must.Succeed(t, os.Rename(file, file+".1"))
	reopen <- syscall.SIGHUP
	servicetest.Eventually(t, "the file is there again", func() bool {
		_, err := os.Stat(file)
		return err == nil
	})
	p.Agent.Stop()
	postSecrets(p, "/after")
	if l := accessLogLines(t, file, 1); len(l) != 1 || l[0]["path"] != "/after" || l[0]["status"] != 503.0 ||
		l[0]["code"] != "ERR_FL_3001" {
		t.Errorf("in the new file: %v", l)
	}
	must.Succeed(t, p.StopAndWait())
	checkAccessLogFile(t, file)
	checkAccessLogFile(t, file+".1")
}

// checkAccessLogFile checks that the file lacks secret and that only its owner and group may read
// it.
func checkAccessLogFile(t *testing.T, file string) {
	t.Helper()
	if b, err := os.ReadFile(file); err != nil || strings.Contains(string(b), secret) {
		t.Errorf("%s: %v\n%s", file, err, b)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm()&0o007 != 0 {
		t.Errorf("%s is open to all users: %v %v", file, info.Mode(), err)
	}
}

// TestAccessLog_Samples logs none but errors: a refused connection has a line, and a stop loses
// none.
func TestAccessLog_Samples(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "access.log")
	p := servicetest.NewTCPPathTo(t, servicetest.Start(t, func(o *service.Options) {
		o.AccessLog, o.AccessLogSample = file, 0
	}), servicetest.ServeTCP(t, servicetest.Echo))
	st := p.Forwarder.Open(servicetest.OpenHeader(t, p.Bound))
	_, _ = io.WriteString(st, "question")
	_ = st.CloseWrite()
	_ = servicetest.ReadAll(t, st)
	checkCounted(p, `fairlead_server_endpoint_connections_total{endpoint="ID"} 1`,
		`fairlead_server_access_log_dropped_total 0`)
	p.Agent.Stop()
	p.Forwarder.OpenRefused(servicetest.OpenHeader(t, p.Bound))
	must.Succeed(t, p.StopAndWait())
	if l := accessLogLines(t, file, 1); len(l) != 1 || l[0]["code"] != "ERR_FL_3001" || l[0]["status"] != nil ||
		l[0]["method"] != nil {
		t.Errorf("lines %v", l)
	}
}
