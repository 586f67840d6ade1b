// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
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
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// fullDisk is a service whose store is limited to a number of pages.
type fullDisk struct {
	*servicetest.Server
	store *store.Store
	body  string   // of each backend
	made  []string // backends that the API has acknowledged
}

// limit sets how many pages the store may have.
func (d *fullDisk) limit(pages int) {
	d.T.Helper()
	must.Succeed(d.T, storetest.SetMaxPages(servicetest.Context(d.T), d.store, pages))
}

// fill creates backends until the API answers 503, then small objects until none fits.
func (d *fullDisk) fill() {
	d.T.Helper()
	status := http.StatusCreated
	for i := 0; status == http.StatusCreated && i < 60; i++ {
		var b struct{ ID string }
		status = d.CallAPI("POST", "/backends/http_response",
			map[string]any{"status_code": 200, "body": d.body, "description": fmt.Sprint(i)}, &b)
		if status == http.StatusCreated {
			d.made = append(d.made, b.ID)
		}
	}
	if status != http.StatusServiceUnavailable || len(d.made) == 0 {
		d.T.Fatalf("status %d after %d backends", status, len(d.made))
	}
	for i := 0; i < 60 && d.CallAPI("POST", "/credentials", largeCredential(), nil) == http.StatusCreated; i++ {
	}
}

func largeCredential() map[string]any {
	return map[string]any{"metadata": strings.Repeat("m", account.MaxMetadata)}
}

// checkRefused checks that a write is answered with 503 and Retry-After.
func (d *fullDisk) checkRefused(method, path string, in any) {
	d.T.Helper()
	res, err := d.NewAPITransport().RoundTrip(d.NewAPIRequest(method, path, in))
	must.Succeed(d.T, err)
	defer res.Body.Close()
	var e struct {
		Code   account.Code `json:"error_code"`
		Status int          `json:"status_code"`
	}
	after, _ := strconv.Atoi(res.Header.Get("Retry-After"))
	if err := json.NewDecoder(res.Body).Decode(&e); err != nil || res.StatusCode != 503 || e.Status != 503 ||
		e.Code != account.CodeUnavailable || after < 1 {
		d.T.Errorf("%s %s: %s, Retry-After %q: %+v, %v", method, path, res.Status, res.Header.Get("Retry-After"), e,
			err)
	}
}

// checkBackends checks that the API lists exactly the acknowledged backends, unchanged.
func (d *fullDisk) checkBackends(when string) {
	d.T.Helper()
	var list struct{ Backends []struct{ ID, Body string } }
	if status := d.CallAPI("GET", "/backends/http_response?limit=1000", nil, &list); status != http.StatusOK {
		d.T.Fatalf("%s: listing: status %d", when, status)
	}
	var ids []string
	for _, b := range slices.Backward(list.Backends) { // the list has the newest first
		if ids = append(ids, b.ID); b.Body != d.body {
			d.T.Errorf("%s: half of a change is stored: %s", when, b.ID)
		}
	}
	if !slices.Equal(ids, d.made) {
		d.T.Errorf("%s: acknowledged were %v, stored are %v", when, d.made, ids)
	}
}

// TestServer_ReportsFullDisk fills the disk of a running service: writes are refused as a whole,
// reads and traffic go on. With room again writes go on without a restart.
func TestServer_ReportsFullDisk(t *testing.T) {
	t.Parallel()
	d := &fullDisk{body: strings.Repeat("x", 30_000)}
	d.Server = servicetest.Start(t, func(o *service.Options) { o.SetOnStoreOpen(func(s *store.Store) { d.store = s }) })
	p := servicetest.NewPathTo(t, d.Server, servicetest.ServeHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "served")
	}))
	d.limit(400)
	d.fill()
	d.checkRefused("POST", "/credentials", largeCredential())
	d.checkRefused("POST", "/backends/http_response", map[string]any{"status_code": 200, "body": d.body})
	d.checkRefused("PATCH", "/backends/http_response/"+d.made[0], map[string]any{"body": strings.Repeat("b", 60_000)})
	d.checkBackends("on a full disk")
	if got := servicetest.ReadAll(t,
		p.Forwarder.Do(p.Transport, "GET", "http://hello.demo/", nil, nil).Body); got != "served" {
		t.Errorf("traffic: %q", got)
	}
	d.limit(1 << 30)
	d.CreateObject("/endpoints", map[string]any{"url": "http://cloud.demo", "backend_id": d.made[0],
		"metadata": strings.Repeat("m", account.MaxMetadata)}, nil)
	d.checkBackends("with room again")
}
