// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// TestRecent_HoldsMetadataOnly plants secrets in everything that a request carries.
func TestRecent_HoldsMetadataOnly(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, 0)
	r.record(request{uri: "/a%20b?token=planted-query#planted-fragment", took: time.Second, in: 3, out: 5})
	r.at = r.at.Add(time.Second)
	r.record(request{uri: "http://user:planted-password@host/abs?x=planted-query", method: "POST"})
	r.at = r.at.Add(time.Second)
	r.record(request{uri: "/pod", pod: &tunnel.PodIdentity{Namespace: "prod", Name: "web-1",
		Annotations: map[string]string{"a": "planted-annotation"}}})
	got, _ := r.Recent(t.Context(), "ac-1", "ep-1", false, 10)
	b, err := json.Marshal(got)
	if err != nil || strings.Contains(string(b), "planted") {
		t.Errorf("%s, %v", b, err)
	}
	if len(got) != 3 {
		t.Fatalf("%d requests", len(got))
	}
	if q := got[2]; q.Path != "/a%20b" || q.Method != "GET" || q.Caller != "203.0.113.9" || q.Proto != "HTTP/1.1" ||
		!q.At.Equal(epoch) || q.Duration != time.Second || q.BytesIn != 3 || q.BytesOut != 5 || q.ID == got[1].ID {
		t.Errorf("%+v", q)
	}
	if got[0].Caller != "prod/web-1" || got[0].Path != "/pod" {
		t.Errorf("%+v", got[0])
	}
}

// TestRecent_KeepsFailingRequestsApart records a failing request and many others after it.
func TestRecent_KeepsFailingRequestsApart(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, 0)
	r.record(request{uri: "/denied", status: 403, code: account.CodeDenied})
	r.record(request{uri: "/broken", status: 500})
	r.record(request{uri: "/missing", status: 404})
	for i := range 1000 {
		r.at = r.at.Add(time.Millisecond)
		r.record(request{uri: fmt.Sprintf("/%d", i)})
	}
	got, _ := r.Recent(t.Context(), "ac-1", "ep-1", false, 1000)
	if len(got) != ringSlots || got[0].Path != "/999" || got[1].Path != "/998" {
		t.Errorf("%d requests, the newest %v", len(got), got[:min(len(got), 2)])
	}
	failed, _ := r.Recent(t.Context(), "ac-1", "ep-1", true, 1000)
	if len(failed) != 1 || !failed[0].Failing() || failed[0].Status != 500 { // 403 is the policy's answer
		t.Errorf("failing: %+v", failed)
	}
	if got, _ := r.Recent(t.Context(), "ac-1", "ep-1", false, -1); len(got) != 0 {
		t.Errorf("%d requests with a limit below 0", len(got))
	}
}

// TestRecent_CutsLongTexts records texts that do not fit, and are not UTF-8.
func TestRecent_CutsLongTexts(t *testing.T) {
	t.Parallel()
	r := newRecorder(t, 0)
	r.record(request{method: strings.Repeat("M", 100), uri: "/\xff" + strings.Repeat("é", 10_000),
		pod: &tunnel.PodIdentity{Namespace: strings.Repeat("n", 63), Name: strings.Repeat("p", 253)}})
	got, _ := r.Recent(t.Context(), "ac-1", "ep-1", false, 1)
	q := got[0]
	if len(q.Method) != maxMethodText || len(q.Caller) != maxCallerText || !strings.HasPrefix(q.Path, "/�é") ||
		!strings.HasSuffix(q.Path, "…") || len(q.Path) < slotText-maxMethodText-maxCallerText {
		t.Errorf("%+v", q)
	}
}
