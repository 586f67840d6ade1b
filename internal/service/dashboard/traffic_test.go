// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service/traffic"
)

func TestTraffic_WithoutRecorder(t *testing.T) {
	t.Parallel()
	f := newFake(testTime())
	b := signedInAs(t, dashboardOf(t, f, func(o *Options) { o.Traffic = nil }), "flk_read")
	for _, path := range []string{"/ui/traffic", "/ui/endpoints/" + f.endpoints[0].ID + "/traffic",
		"/ui/backends/" + f.backends[0].ID + "/traffic"} {
		if a := b.get(path); a.status != http.StatusOK || !strings.Contains(a.body, "This server records no traffic.") {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	for _, path := range []string{"/ui/map", "/ui/endpoints/" + f.endpoints[0].ID + "/path"} {
		if a := b.get(path); a.status != http.StatusOK || !strings.Contains(a.body, "http://hello.demo") {
			t.Errorf("%s: %d", path, a.status)
		}
	}
}

func TestTraffic_FiltersRequests(t *testing.T) {
	t.Parallel()
	f, b := newSignedIn(t, "flk_read")
	path := "/ui/endpoints/" + f.endpoints[3].ID + "/traffic"
	all, failing := b.get(path).body, b.get(path+"?requests=failing&window=day").body
	if n := strings.Count(all, `data-key="rq-`); n != 40 || !strings.Contains(all, ">499 left<") {
		t.Errorf("%d requests are shown", n)
	}
	if n := strings.Count(failing, `data-key="rq-`); n != 10 || strings.Contains(failing, ">404<") ||
		!strings.Contains(failing, ">500<") || !strings.Contains(failing, "ERR_FL_3005") {
		t.Errorf("%d requests are shown as failing, want 10", n)
	}
	for _, link := range []string{path + `?requests=failing"`, path + "?window=day#requests"} {
		if !strings.Contains(failing, link) {
			t.Errorf("a link to a variant lacks the other parameter: %s", link)
		}
	}
	if body := b.get("/ui/endpoints/" + f.endpoints[4].ID + "/traffic?requests=failing").body; !strings.Contains(body,
		"None of those that are kept failed.") {
		t.Error("an endpoint without failing requests does not say so")
	}
}

func TestTraffic_StatesCoverage(t *testing.T) {
	t.Parallel()
	f := newFake(testTime())
	recorder := &limitedTraffic{fake: f}
	b := signedInAs(t, dashboardOf(t, f, func(o *Options) { o.Traffic = recorder }), "flk_read")
	for want, coverage := range map[string]traffic.Coverage{
		"Nothing is recorded yet.": {},
		"when the server started":  {Since: testTime().Add(-time.Minute)},
		"<code>rp-a</code>, <code>rp-b</code> did not answer. What went through these replicas is missing.": {
			Since: testTime().Add(-time.Hour), Missing: []string{"rp-a", "rp-b"}},
		"this has no series of its own now": {Since: testTime(), Summed: true},
		"the sums lack what went through replicas that started later": {Since: testTime().Add(-2 * time.Hour),
			Complete: testTime().Add(-time.Minute)},
	} {
		recorder.is = coverage
		if body := b.get("/ui/traffic").body; !strings.Contains(body, want) {
			t.Errorf("%+v: the page lacks %q", coverage, want)
		}
	}
	recorder.is = traffic.Coverage{Since: testTime().Add(-2 * time.Hour), Complete: testTime().Add(-2 * time.Hour)}
	if body := b.get("/ui/traffic").body; strings.Contains(body, "Recorded since") ||
		strings.Contains(body, "did not answer") {
		t.Error("a complete window has a note")
	}
}

// TestTraffic_SumsTheLessBusy requires that the list of the busiest endpoints ends with the sum of
// all others.
func TestTraffic_SumsTheLessBusy(t *testing.T) {
	t.Parallel()
	f := newFake(testTime())
	f.addMany(25)
	rates := map[traffic.Key]traffic.Rate{traffic.OfAccount: {PerSecond: 100},
		traffic.OfOthers: {PerSecond: 2, FailingPerSecond: 0.5}}
	for _, e := range f.endpoints[7:] {
		rates[traffic.Key(e.ID)] = traffic.Rate{PerSecond: 3, FailingPerSecond: 0.1}
	}
	recorder := &limitedTraffic{fake: f, is: traffic.Coverage{Since: testTime()}, rates: rates}
	b := signedInAs(t, dashboardOf(t, f, func(o *Options) { o.Traffic = recorder }), "flk_read")
	_, list, _ := strings.Cut(b.get("/ui/traffic").body, "Busiest now")
	if n := strings.Count(list, `<tr data-key="ep-`); n != busiestShown {
		t.Errorf("%d endpoints are listed, want %d", n, busiestShown)
	}
	_, last, _ := strings.Cut(list, `data-key="others"`)
	if !strings.Contains(last, ">17/s<") || !strings.Contains(last, ">1/s<") ||
		strings.Contains(last, `data-key="ep-`) {
		t.Errorf("the others are %s", last) // 2 and five times 3
	}
}

// TestTraffic_EmptyBeforeRecording requires that empty axes are not drawn where there is nothing.
func TestTraffic_EmptyBeforeRecording(t *testing.T) {
	t.Parallel()
	f := newFake(testTime())
	recorder := &limitedTraffic{fake: f}
	b := signedInAs(t, dashboardOf(t, f, func(o *Options) { o.Traffic = recorder }), "flk_read")
	path := "/ui/endpoints/" + f.endpoints[6].ID + "/traffic"
	if body := b.get(path).body; strings.Contains(body, `class="chart"`) || strings.Contains(body, "Nothing passed") {
		t.Error("a page without a recording has charts")
	}
	recorder.is.Since = testTime().Add(-time.Minute)
	if body := b.get(path).body; strings.Count(body, `class="chart"`) != 5 ||
		!strings.Contains(body, "Nothing passed") {
		t.Error("a quiet endpoint has no charts")
	}
}

// limitedTraffic is the fake's traffic with another coverage and other rates.
type limitedTraffic struct {
	*fake
	is    traffic.Coverage
	rates map[traffic.Key]traffic.Rate // nil = the fake's
}

func (l *limitedTraffic) Rates(
	ctx context.Context, accountID string,
) (map[traffic.Key]traffic.Rate, traffic.Coverage) {
	if l.rates != nil {
		return l.rates, l.is
	}
	return l.fake.Rates(ctx, accountID)
}

func (l *limitedTraffic) Series(
	ctx context.Context, accountID string, k traffic.Key, w traffic.Window,
) (traffic.Series, traffic.Coverage) {
	series, _ := l.fake.Series(ctx, accountID, k, w)
	return series, l.is
}

// TestValues_LeaveOutUnknownSteps requires that a step of before the recording is a gap, not a 0.
func TestValues_LeaveOutUnknownSteps(t *testing.T) {
	t.Parallel()
	start := testTime()
	s := traffic.Series{Start: start, Step: 10 * time.Second, Points: make([]traffic.Point, 4)}
	one := func(*traffic.Point) float64 { return 1 }
	for known, since := range map[int]time.Time{0: {}, 4: start, 2: start.Add(11 * time.Second),
		3: start.Add(10 * time.Second)} {
		n := 0
		for _, v := range pointValues(s, since, one) {
			if !math.IsNaN(v) {
				n++
			}
		}
		if n != known {
			t.Errorf("since %s: %d steps are known, want %d", since, n, known)
		}
	}
}

// TestTraffic_PagesAreSmall limits the bytes of a page that is read again every 15 s.
func TestTraffic_PagesAreSmall(t *testing.T) {
	t.Parallel()
	_, b := newSignedIn(t, "flk_read")
	for path, most := range map[string]int{"/ui/traffic": 100 << 10, "/ui/traffic?window=day": 250 << 10} {
		if n := len(b.get(path).body); n > most {
			t.Errorf("%s has %d bytes, at most %d", path, n, most)
		}
	}
}
