// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sdk_test

import (
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"testing"

	"github.com/fairlead-dev/fairlead/sdk"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// checkEveryField checks that the endpoint has what its JSON says, which sets each of its fields.
func checkEveryField(t *testing.T, e *sdk.Endpoint, text string) {
	t.Helper()
	var want sdk.Endpoint
	if err := json.Unmarshal([]byte(text), &want); err != nil || !reflect.DeepEqual(*e, want) {
		t.Errorf("got %+v, want %+v, %v", *e, want, err)
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[sdk.Endpoint]()) {
		if reflect.ValueOf(want).FieldByIndex(f.Index).IsZero() {
			t.Errorf("the test has no %s", f.Name)
		}
	}
}

// TestEndpoints_WatchComparesWhenGone holds that a watch whose version the service has forgotten
// yields how the account differs from what it has yielded.
func TestEndpoints_WatchComparesWhenGone(t *testing.T) {
	t.Parallel()
	lists := make(chan string, 2)
	const whole = `{"id":"ep-b","url":"b","description":"d","metadata":"m","created_at":"2026-01-02T03:04:05Z",
		"host":"h","port":1,"type":"agent","bindings":["internal"],"name":"n","status":"offline",
		"offline_since":"2026-01-02T03:04:06Z","updated_at":"2026-01-02T03:04:07Z","pooling_enabled":true,
		"upstream_url":"u","tunnel_session":{"id":"ts-a"},"backend_id":"bk-a","traffic_policy":"p",
		"resource_version":"1-2"}`
	lists <- `{"resource_version":"1-2","endpoints":[` + whole + `,
		{"id":"ep-a","url":"a","resource_version":"1-1"}]}`
	lists <- `{"resource_version":"1-9","endpoints":[{"id":"ep-c","url":"c","resource_version":"1-9"},
		{"id":"ep-a","url":"a","resource_version":"1-8"}]}`
	service := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			_, _ = io.WriteString(w, <-lists)
			return
		}
		w.WriteHeader(http.StatusGone)
		_, _ = io.WriteString(w, `{"error_code":"ERR_FL_1070","status_code":410,"msg":"compacted","details":{}}`)
	}))
	defer service.Close()
	roots := x509.NewCertPool()
	roots.AddCert(service.Certificate())
	c, err := sdk.NewClient(sdk.WithServer(service.URL), sdk.WithRootCAs(roots), sdk.WithAPIKey("flk_test"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var got []string
	for e, err := range c.Endpoints.Watch(servicetest.Context(t), nil) {
		if err != nil {
			t.Fatal(err)
		}
		text := string(e.Type)
		if e.Endpoint != nil {
			text += " " + e.Endpoint.URL
		}
		if text == "ADDED b" {
			checkEveryField(t, e.Endpoint, whole)
		}
		if got = append(got, text); text == "SYNCED" && len(got) > 3 {
			break
		}
	}
	want := []string{"ADDED a", "ADDED b", "SYNCED", "MODIFIED a", "ADDED c", "DELETED b", "SYNCED"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
