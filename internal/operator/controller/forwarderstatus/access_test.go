// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarderstatus

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/internal/account"
)

func TestReader_Enforcement(t *testing.T) {
	t.Parallel()
	runReader(t, func(h *harness) {
		if e := h.Enforcement("demo", "a1"); e.Known {
			t.Errorf("known before any report: %+v", e)
		}
		a, b := h.pod("10.0.0.1"), h.pod("10.0.0.2")
		h.set <- []Pod{{UID: "1", Name: "10.0.0.1", IP: "10.0.0.1", Ready: true},
			{UID: "2", Name: "10.0.0.2", IP: "10.0.0.2", Ready: true}}
		a.lines <- `{"listeners":[],"access":{"pod_identity":true,"complete":true,"policies":{"demo":"a1"}}}`
		b.lines <- `{"listeners":[]}`
		synctest.Wait()
		expect := func(namespace, digest string, want Enforcement) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(want, h.Enforcement(namespace, digest)); diff != "" {
				t.Errorf("%s %s (-want +got):\n%s", namespace, digest, diff)
			}
		}
		expect("demo", "a1", Enforcement{true, 2, 1, 0, 0, "10.0.0.2"}) // the second is of an earlier version
		b.lines <- `{"access":{"pod_identity":false,"complete":true,"policies":{"demo":"a1"}}}`
		expect("demo", "a1", Enforcement{true, 2, 1, 1, 0, ""})
		expect("demo", "a2", Enforcement{true, 2, 0, 0, 0, "10.0.0.1"})
		b.lines <- `{"access":{"pod_identity":true,"complete":false,"policies":{"demo":"a1"}}}`
		expect("demo", "a1", Enforcement{true, 2, 1, 0, 0, "10.0.0.2"})
		if h.NetworkPoliciesReliedOn() {
			t.Error("forwarders rely on NetworkPolicies")
		}
		b.lines <- `{"access":{"network_policies":true,"complete":true,"policies":{"demo":"a1"}}}`
		expect("demo", "a1", Enforcement{true, 2, 1, 0, 1, ""})
		expect("demo", "a2", Enforcement{true, 2, 0, 0, 0, "10.0.0.1"})
		if !h.NetworkPoliciesReliedOn() {
			t.Error("no forwarder relies on NetworkPolicies")
		}
		b.lines <- `{"access":{"pod_identity":true,"complete":true,"policies":{"demo":"a1"}}}`
		expect("demo", "a1", Enforcement{true, 2, 2, 0, 0, ""})
	})
}

func TestReader_DeniedOfSeveralForwarders(t *testing.T) {
	t.Parallel()
	runReader(t, func(h *harness) {
		a, b := h.pod("10.0.0.1"), h.pod("10.0.0.2")
		h.set <- []Pod{{UID: "1", Name: "10.0.0.1", IP: "10.0.0.1", Ready: true},
			{UID: "2", Name: "10.0.0.2", IP: "10.0.0.2", Ready: true}}
		a.lines <- `{"listeners":[],"denied":[{"hostname":"api.demo","port":80,"caller":"shop/web","count":2,` +
			`"last_time":"2026-11-20T12:00:01Z"},{"hostname":"api.other","port":80,"caller":"shop/web","count":9,` +
			`"last_time":"2026-11-20T12:00:09Z"}]}`
		b.lines <- `{"listeners":[]}`
		b.lines <- `{"denied":[{"hostname":"api.demo","port":80,"caller":"shop/web","count":3,` +
			`"last_time":"2026-11-20T12:00:03Z"},{"hostname":"db.demo.b","port":5432,"caller":"192.0.2.7","count":1,` +
			`"last_time":"2026-11-20T12:00:02Z"}]}`
		synctest.Wait()
		at := func(s int) time.Time { return time.Date(2026, 11, 20, 12, 0, s, 0, time.UTC) }
		want := []DeniedCalls{{"api.demo", 80, "shop/web", 5, at(3)}, {"db.demo.b", 5432, "192.0.2.7", 1, at(2)}}
		if diff := cmp.Diff(want, h.Denied("demo")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestReader_SealsRefused holds that a seal that is refused, and one that is not any more, are
// reported and concern the hostname.
func TestReader_SealsRefused(t *testing.T) {
	t.Parallel()
	runReader(t, func(h *harness) {
		a := h.pod("10.0.0.1")
		h.set <- []Pod{{UID: "1", Name: "10.0.0.1", IP: "10.0.0.1", Ready: true}}
		const listener = `{"port":20000,"hostname":"db.demo","listening":true`
		a.lines <- `{"listeners":[` + listener + `}]}`
		h.notified()
		for _, tt := range []struct {
			line string
			want map[int]SealRefused
		}{
			{`,"seal_refused":{"reason":"KeyChanged","message":"its key is other"}`,
				map[int]SealRefused{20000: {"10.0.0.1", "KeyChanged", "its key is other"}}},
			{"", nil},
		} {
			a.lines <- `{"listeners":[` + listener + tt.line + `}]}`
			if _, later := h.notified(); len(later) != 1 || later[0] != "db.demo" {
				t.Errorf("notified of %v", later)
			}
			if diff := cmp.Diff(tt.want, h.Report("db.demo", []int{20000}).SealsRefused); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
		u := account.EndpointURL{Scheme: "tcp", Host: "db.demo", Port: 5432}
		for _, tt := range []struct {
			line string
			want map[account.EndpointURL]string
		}{
			{`,"url":"tcp://db.demo:5432","seal_key":"sha256/x"`, map[account.EndpointURL]string{u: "sha256/x"}},
			{`,"url":"tcp://db.demo.b:5432","seal_key":"sha256/x"`,
				map[account.EndpointURL]string{account.ExportedPortURL("db", "demo", "b", 5432): "sha256/x"}},
			{`,"url":"tcp://db.demo:5432"`, map[account.EndpointURL]string{}},
		} {
			a.lines <- `{"listeners":[` + listener + tt.line + `}]}`
			synctest.Wait()
			if diff := cmp.Diff(tt.want, h.SealedKeys("demo")); diff != "" || len(h.SealedKeys("other")) > 0 {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
	})
}
