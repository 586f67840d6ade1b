// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarderstatus

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

const (
	up      = `"session":{"up":true}`
	down    = `"session":{"up":false,"error":"dial tcp 10.0.0.1:443: connection refused"}`
	api     = `{"port":20080,"hostname":"api.demo","listening":true}`
	db      = `{"port":20081,"hostname":"db.demo","listening":true}`
	failing = `{"port":20080,"hostname":"api.demo","listening":false,"error":"address already in use"}`
)

func full(session string, listeners ...string) string {
	return `{"pod":"x","ready":true,"draining":false,` + session + `,"listeners":[` + strings.Join(listeners, ",") +
		`]}`
}

func ready(name string) Pod { return Pod{UID: "uid-" + name, Name: name, IP: name, Ready: true} }

// twoForwarders starts two forwarders that listen for api.demo.
func twoForwarders(h *harness) (a, b *pod) {
	a, b = h.pod("a"), h.pod("b")
	h.set <- []Pod{ready("a"), ready("b")}
	a.lines <- full(up, api)
	b.lines <- full(up, api)
	keepAlive(20*time.Second, a, b)
	h.notified()
	return a, b
}

func (h *harness) expectReport(hostname string, want Report) {
	h.t.Helper()
	synctest.Wait()
	if got := h.Report(hostname, []int{20080}); !reflect.DeepEqual(got, want) {
		h.t.Errorf("%s:\n got %+v\nwant %+v", hostname, got, want)
	}
}

func TestReader_UnknownUntilEveryForwarderReports(t *testing.T) {
	t.Parallel()
	runReader(t, func(h *harness) {
		a, b := h.pod("a"), h.pod("b")
		h.expectReport("api.demo", Report{Settled: true})
		h.set <- []Pod{ready("a"), ready("b")}
		a.lines <- full(up, api)
		h.expectReport("api.demo", Report{Forwarders: 1, Listening: 1, Sessions: 1})
		if _, later := h.notified(); later != nil {
			t.Errorf("notified %v before it was known", later)
		}
		b.lines <- full(up, api)
		h.expectReport("api.demo", Report{Known: true, Forwarders: 2, Listening: 2, Sessions: 2})
		if _, later := h.notified(); !slices.Equal(later, []string{"all"}) {
			t.Errorf("notified %v", later)
		}
		keepAlive(11*time.Second, a, b)
		h.expectReport("api.demo", Report{Known: true, Forwarders: 2, Listening: 2, Sessions: 2, Settled: true})
		if known, problem := h.EdgeStatus(); !known || problem != "" {
			t.Errorf("edge: %v %q", known, problem)
		}
	})
}

// expectCounts compares the numbers of forwarders by state, as the metric has them.
func (h *harness) expectCounts(registry *prometheus.Registry, want map[string]float64) {
	h.t.Helper()
	synctest.Wait()
	families, err := registry.Gather()
	must.Succeed(h.t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			got[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
		}
	}
	if !maps.Equal(got, want) {
		h.t.Errorf("forwarders by state %v, want %v", got, want)
	}
}

func TestReader_CountsForwardersByState(t *testing.T) {
	t.Parallel()
	runReader(t, func(h *harness) {
		registry := prometheus.NewRegistry()
		must.Succeed(t, h.RegisterMetrics(registry))
		h.expectCounts(registry, map[string]float64{}) // as of a manager that does not lead
		a, b, c := h.pod("a"), h.pod("b"), h.pod("c")
		c.unreachable = true
		h.set <- []Pod{ready("a"), ready("b"), ready("c"), {UID: "uid-d", Name: "d"}}
		a.lines <- full(up, api)
		b.lines <- full(down, api)
		h.expectCounts(registry, map[string]float64{"with_session": 1, "without_session": 1, "not_reporting": 0,
			"starting": 2})
		keepAlive(26*time.Second, a, b)
		h.expectCounts(registry, map[string]float64{"with_session": 1, "without_session": 1, "not_reporting": 1,
			"starting": 1})
	})
}

func TestReader_NoForwarderIsKnownAtOnce(t *testing.T) {
	t.Parallel()
	runReader(t, func(h *harness) {
		h.set <- nil
		h.expectReport("api.demo", Report{Known: true, Settled: true})
		h.set <- []Pod{{UID: "u", Name: "a"}}
		h.expectReport("api.demo", Report{Known: true, Settled: true, Starting: true})
		time.Sleep(11 * time.Second)
		if known, problem := h.EdgeStatus(); !known || problem != "no forwarder is running" {
			t.Errorf("edge: %v %q", known, problem)
		}
	})
}

func TestReader_NotifiesConcernedHostnames(t *testing.T) {
	t.Parallel()
	runReader(t, func(h *harness) {
		a, b := twoForwarders(h)
		a.lines <- `{"listeners":[` + failing + `]}`
		h.expectReport("api.demo", Report{
			Known: true, Forwarders: 2, Listening: 1, Sessions: 2, Settled: true,
			Failures: []Failure{{Pod: "a", Port: 20080, Error: "address already in use"}},
		})
		if prompt, later := h.notified(); prompt != nil || !slices.Equal(later, []string{"api.demo"}) {
			t.Errorf("a failure: notified %v, %v", prompt, later)
		}
		a.lines <- `{"listeners":[` + failing + `]}`
		if _, later := h.notified(); later != nil {
			t.Errorf("nothing new: notified %v", later)
		}
		b.lines <- `{"gone":[20080],"listeners":[` + strings.Replace(db, "20081", "20080", 1) + `]}`
		if _, later := h.notified(); !slices.Equal(later, []string{"api.demo", "db.demo"}) {
			t.Errorf("a port that changed hands: notified %v", later)
		}
		if got := h.Report("api.demo", []int{20080}).Failures; len(got) != 2 ||
			got[1] != (Failure{Pod: "b", Port: 20080}) {
			t.Errorf("a port of another hostname counts: %+v", got)
		}
	})
}

func TestReader_NotifiesAwaitedHostnameOnce(t *testing.T) {
	t.Parallel()
	runReader(t, func(h *harness) {
		a, b := twoForwarders(h)
		h.NotifyOnChange("db.demo")
		h.NotifyOnChange("gone.demo")
		h.CancelNotify("gone.demo")
		a.lines <- `{"listeners":[` + db + `,{"port":1,"hostname":"gone.demo","listening":true}]}`
		if prompt, later := h.notified(); !slices.Equal(prompt, []string{"db.demo"}) ||
			!slices.Equal(later, []string{"gone.demo"}) {
			t.Errorf("notified %v, %v", prompt, later)
		}
		b.lines <- `{"listeners":[` + db + `]}`
		if prompt, later := h.notified(); prompt != nil || !slices.Equal(later, []string{"db.demo"}) {
			t.Errorf("notified %v, %v", prompt, later)
		}
	})
}

func TestReader_FirstForwarderNotifiesAwaited(t *testing.T) {
	t.Parallel()
	runReader(t, func(h *harness) {
		a := h.pod("a")
		starting := ready("a")
		starting.Ready = false
		h.set <- []Pod{starting}
		a.lines <- full(up, api)
		h.NotifyOnChange("api.demo")
		h.expectReport("api.demo", Report{Known: true, Starting: true, Settled: true})
		h.set <- []Pod{ready("a")}
		h.expectReport("api.demo", Report{Known: true, Forwarders: 1, Listening: 1, Sessions: 1})
		if prompt, _ := h.notified(); !slices.Equal(prompt, []string{"api.demo"}) {
			t.Errorf("notified %v", prompt)
		}
	})
}

// TestReader_NotifiesAfterRollout replaces two forwarders one by one, each new one before an old
// one: no hostname is notified until that is over, and then the state is as before.
func TestReader_NotifiesAfterRollout(t *testing.T) {
	t.Parallel()
	runReader(t, func(h *harness) {
		a, b := twoForwarders(h)
		c, d := h.pod("c"), h.pod("d")
		h.set <- []Pod{ready("a"), ready("b"), ready("c")}
		// c has not reported yet
		h.expectReport("api.demo", Report{Known: true, Forwarders: 2, Listening: 2, Sessions: 2, Settled: true})
		c.lines <- full(up, api)
		h.expectReport("api.demo", Report{Known: true, Forwarders: 3, Listening: 3, Sessions: 3})
		keepAlive(5*time.Second, a, b, c)
		h.set <- []Pod{ready("b"), ready("c"), ready("d")}
		d.lines <- full(up, api)
		keepAlive(5*time.Second, b, c, d)
		h.set <- []Pod{ready("c"), ready("d")}
		h.expectReport("api.demo", Report{Known: true, Forwarders: 2, Listening: 2, Sessions: 2})
		if prompt, later := h.notified(); prompt != nil || later != nil {
			t.Errorf("notified %v, %v while it went on", prompt, later)
		}
		keepAlive(12*time.Second, c, d)
		h.expectReport("api.demo", Report{Known: true, Forwarders: 2, Listening: 2, Sessions: 2, Settled: true})
		if _, later := h.notified(); !slices.Equal(later, []string{"all"}) {
			t.Errorf("notified %v once it was over", later)
		}
		keepAlive(time.Minute, c, d)
		if _, later := h.notified(); later != nil {
			t.Errorf("notified %v at rest", later)
		}
	})
}

func TestReader_LastSessionOrForwarderNotifiesAll(t *testing.T) {
	t.Parallel()
	runReader(t, func(h *harness) {
		a, b := twoForwarders(h)
		a.lines <- `{` + down + `}`
		h.expectReport("api.demo", Report{Known: true, Forwarders: 2, Listening: 2, Sessions: 1, Settled: true})
		if _, later := h.notified(); later != nil {
			t.Errorf("one of two sessions: notified %v", later)
		}
		if known, _ := h.EdgeStatus(); known {
			t.Error("the edge is reported unreachable at once")
		}
		keepAlive(11*time.Second, a, b)
		want := "1 of 2 forwarders have a session with the edge; forwarder a: dial tcp 10.0.0.1:443: connection refused"
		if known, problem := h.EdgeStatus(); !known || problem != want {
			t.Errorf("edge: %v %q", known, problem)
		}
		b.lines <- `{` + down + `}`
		if _, later := h.notified(); !slices.Equal(later, []string{"all"}) {
			t.Errorf("the last session: notified %v", later)
		}
		h.set <- nil
		if _, later := h.notified(); !slices.Equal(later, []string{"all"}) {
			t.Errorf("the last forwarder: notified %v", later)
		}
		h.expectReport("api.demo", Report{Known: true})
	})
}

func TestReader_Legs(t *testing.T) {
	t.Parallel()
	const all = `"session":{"up":true,` +
		`"legs":[{"replica":"rp-1"},{"replica":"rp-2"},{"replica":"rp-3"}],"wanted_legs":3}`
	runReader(t, func(h *harness) {
		expect := func(known bool, want string) {
			t.Helper()
			synctest.Wait()
			if k, legs := h.Legs(); k != known || legs != want {
				t.Errorf("legs: %v %q, want %v %q", k, legs, known, want)
			}
		}
		expect(false, "")
		a, b := twoForwarders(h)
		expect(true, "") // no replicas
		a.lines <- "{" + all + "}"
		b.lines <- "{" + all + "}"
		expect(true, "3/3")
		b.lines <- "{" + strings.Replace(all, `"rp-2"`, `"rp-2","draining":true`, 1) + "}"
		expect(true, "2/3")
		b.lines <- "{" + strings.Replace(strings.Replace(all, `"rp-2"`, `"rp-2","draining":true`, 1), `:3}`, `:2}`, 1) +
			"}"
		expect(true, "2/2")
		a.lines <- "{" + strings.Replace(strings.Replace(all, `"rp-2"`, `"rp-2","draining":true`, 1), `"rp-3"`,
			`"rp-3","unresponsive":true`, 1) + "}"
		expect(true, "1/3")
		a.lines <- "{" + down + "}"
		expect(true, "2/2")
		b.lines <- "{" + down + "}"
		expect(true, "")
	})
}

func TestReader_BrokenStreamStaysValidAndReconnects(t *testing.T) {
	t.Parallel()
	runReader(t, func(h *harness) {
		a, b := twoForwarders(h)
		a.unreachable = true
		close(a.lines)
		keepAlive(20*time.Second, b)
		h.expectReport("api.demo", Report{Known: true, Forwarders: 2, Listening: 2, Sessions: 2, Settled: true})
		keepAlive(20*time.Second, b)
		h.expectReport("api.demo", Report{
			Known: true, Forwarders: 2, Listening: 1, NotReporting: 1, Sessions: 1, Settled: true,
		})
		h.notified()
		again := h.pod("a")
		keepAlive(6*time.Second, b)
		again.lines <- full(up, api, db)
		h.expectReport("api.demo", Report{Known: true, Forwarders: 2, Listening: 2, Sessions: 2})
	})
}

func TestReader_SilentStreamIsBroken(t *testing.T) {
	t.Parallel()
	runReader(t, func(h *harness) {
		_, b := twoForwarders(h)
		keepAlive(51*time.Second, b) // 25 s until a counts as broken, 25 s until its last report expires
		h.expectReport("api.demo", Report{Known: true, Forwarders: 2, Listening: 1, NotReporting: 1, Sessions: 1})
	})
}

func TestReader_InvalidResponses(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"HTML": "<html>", "half a document": `{"listeners":[`, "a type": `{"listeners":"none"}`, "an array": "[]",
		"an empty object": "{}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runReader(t, func(h *harness) {
				a := h.pod("a")
				h.set <- []Pod{ready("a")}
				a.lines <- text
				time.Sleep(time.Second)
				h.expectReport("api.demo", Report{Starting: true, Settled: true})
				a.lines <- full(up, api)
				h.expectReport("api.demo", Report{Known: true, Forwarders: 1, Listening: 1, Sessions: 1})
			})
		})
	}
}

func TestLivePods(t *testing.T) {
	t.Parallel()
	make := func(name string, change func(*corev1.Pod)) any {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u"}}
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1",
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
		change(&p)
		trimmed, err := transformPod(&p)
		must.Succeed(t, err)
		return trimmed
	}
	now := metav1.Now()
	got := livePods([]any{
		make("good", func(*corev1.Pod) {}),
		make("unready", func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }),
		make("new", func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodPending} }),
		make("deleted", func(p *corev1.Pod) { p.DeletionTimestamp = &now }),
		make("failed", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
		make("done", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
	})
	want := []Pod{{UID: "u", Name: "good", IP: "10.0.0.1", Ready: true}, {UID: "u", Name: "unready", IP: "10.0.0.1"},
		{UID: "u", Name: "new"}}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
}
