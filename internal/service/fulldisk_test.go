// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/service/servicetest"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

// With a full disk writes are 503, nothing of them is there, reads and traffic go on; and when
// there is room again all goes on without a restart.
func TestServer_ReportsFullDisk(t *testing.T) {
	t.Parallel()
	var disk *store.Store
	r := servicetest.Start(t, func(o *service.Options) { o.SetOnStoreOpen(func(s *store.Store) { disk = s }) })
	p := servicetest.NewPathTo(t, r, servicetest.ServeHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "served")
	}))
	tlsConfig, err := trust.Options{CASHA256: r.Addrs.CAFingerprint}.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{TLSClientConfig: tlsConfig}
	defer tr.CloseIdleConnections()
	call := func(method, path string, in any) (res *http.Response, body []byte) {
		t.Helper()
		b, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(servicetest.Context(t), method, "https://"+r.Addrs.Service.String()+path,
			bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Authorization": {"Bearer " + r.APIKey}, "Service-Version": {"2"},
			"Content-Type": {"application/json"}}
		if res, err = tr.RoundTrip(req); err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if body, err = io.ReadAll(res.Body); err != nil {
			t.Fatal(err)
		}
		return res, body
	}
	make503 := func(method, path string, in any) {
		t.Helper()
		res, body := call(method, path, in)
		var e struct {
			Code   account.Code `json:"error_code"`
			Status int          `json:"status_code"`
		}
		after, _ := strconv.Atoi(res.Header.Get("Retry-After"))
		if err := json.Unmarshal(body, &e); err != nil || res.StatusCode != 503 || e.Status != 503 ||
			e.Code != account.CodeUnavailable || after < 1 {
			t.Errorf("%s %s: %s, Retry-After %q: %s", method, path, res.Status, res.Header.Get("Retry-After"), body)
		}
	}
	if err := disk.SetMaxPages(servicetest.Context(t), 400); err != nil {
		t.Fatal(err)
	}
	body := strings.Repeat("x", 30_000)
	var made []string
	full := false
	for i := 0; i < 60 && !full; i++ {
		res, answer := call("POST", "/backends/http_response",
			map[string]any{"status_code": 200, "body": body, "description": fmt.Sprint(i)})
		var b struct{ ID string }
		if err := json.Unmarshal(answer, &b); err != nil {
			t.Fatal(err)
		}
		if full = res.StatusCode == 503; !full {
			if res.StatusCode != 201 {
				t.Fatalf("%s: %s", res.Status, answer)
			}
			made = append(made, b.ID)
		}
	}
	if !full || len(made) == 0 {
		t.Fatalf("%d were made, and the disk is full: %v", len(made), full)
	}
	for i, fits := 0, true; fits && i < 60; i++ { // what little room is left
		res, _ := call("POST", "/credentials", map[string]any{"metadata": strings.Repeat("m", account.MaxMetadata)})
		fits = res.StatusCode == 201
	}
	make503("POST", "/credentials", map[string]any{"metadata": strings.Repeat("m", account.MaxMetadata)})
	make503("POST", "/backends/http_response", map[string]any{"status_code": 200, "body": body})
	make503("PATCH", "/backends/http_response/"+made[0], map[string]any{"body": strings.Repeat("b", 60_000)})

	listed := func() (ids []string) {
		t.Helper()
		res, answer := call("GET", "/backends/http_response?limit=1000", nil)
		var list struct{ Backends []struct{ ID, Body string } }
		if err := json.Unmarshal(answer, &list); err != nil || res.StatusCode != 200 {
			t.Fatalf("%s: %s", res.Status, answer)
		}
		for _, b := range list.Backends {
			if ids = append(ids, b.ID); b.Body != body {
				t.Errorf("half of a change is there: %s", b.ID)
			}
		}
		slices.Reverse(ids) // newest first
		return ids
	}
	if got := listed(); !slices.Equal(got, made) {
		t.Errorf("acknowledged were %v, there are %v", made, got)
	}
	if got := servicetest.ReadAll(t,
		p.Forwarder.Do(p.Transport, "GET", "http://hello.demo/", nil, nil).Body); got != "served" {
		t.Errorf("traffic: %q", got)
	}
	if err := disk.SetMaxPages(servicetest.Context(t), 1<<30); err != nil {
		t.Fatal(err)
	}
	if res, body := call("POST", "/endpoints", map[string]any{"url": "http://cloud.demo", "backend_id": made[0],
		"metadata": strings.Repeat("m", account.MaxMetadata)}); res.StatusCode != 201 {
		t.Errorf("with room again: %s: %s", res.Status, body)
	}
	if got := listed(); !slices.Equal(got, made) {
		t.Errorf("with room again there are %v, want %v", got, made)
	}
}
