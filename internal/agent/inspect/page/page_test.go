// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bufio"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
	"github.com/fairlead-dev/fairlead/test/support/logbuffer"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// site is the pages over HTTP, as a browser sees them.
type site struct {
	t    *testing.T
	rec  *fakeRecorder
	url  string
	log  *logbuffer.Buffer
	http *http.Client
}

func newSite(t *testing.T, change func(*Options), exchanges ...*inspect.Exchange) *site {
	t.Helper()
	s := &site{t: t, rec: &fakeRecorder{}, log: &logbuffer.Buffer{},
		http: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}}
	s.rec.add(exchanges...)
	opt := Options{Recorder: s.rec, Version: "1.2.3-test", Logger: slog.New(slog.NewTextHandler(s.log, nil))}
	if change != nil {
		change(&opt)
	}
	own := inspect.New() // only the server is used of it
	t.Cleanup(own.Close)
	srv := httptest.NewServer(inspect.NewHandler(own, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)},
		inspect.ServerOptions{Pages: New(opt)}))
	t.Cleanup(srv.Close)
	s.url = srv.URL
	return s
}

func (s *site) do(method, path, form string, headers ...string) (*http.Response, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(form))
	must.Succeed(s.t, err)
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := s.http.Do(req)
	must.Succeed(s.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	must.Succeed(s.t, err)
	return res, string(body)
}

func (s *site) get(path string) string {
	s.t.Helper()
	res, body := s.do(http.MethodGet, path, "")
	if res.StatusCode != http.StatusOK {
		s.t.Fatalf("GET %s: %s: %s", path, res.Status, body)
	}
	return body
}

var tokenField = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// post sends a form with the page's token.
func (s *site) post(path string, form url.Values) (*http.Response, string) {
	s.t.Helper()
	found := tokenField.FindStringSubmatch(s.get("/"))
	if found == nil {
		s.t.Fatal("the list has no token")
	}
	if form == nil {
		form = url.Values{}
	}
	form.Set("csrf", found[1])
	return s.do(http.MethodPost, path, form.Encode())
}

func TestPages_RefuseFormsWithoutToken(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil, exchange("a", "GET", "/", 200, "text/plain", "hello"))
	for _, path := range []string{"/clear", "/har", "/requests/a", "/requests/a/edit", "/requests/a/replay",
		"/requests/a/har", "/requests/a/curl", "/requests/a/response/download"} {
		for _, form := range []string{"", "csrf=", "csrf=wrong"} {
			if res, body := s.do(http.MethodPost, path, form); res.StatusCode != http.StatusForbidden {
				t.Errorf("POST %s with %q: %s: %s", path, form, res.Status, body)
			}
		}
	}
	if n := len(s.rec.List(inspect.Filter{})); n != 1 || len(s.rec.replayed()) != 0 {
		t.Errorf("after refused forms there are %d exchanges and %d replays", n, len(s.rec.replayed()))
	}
	if res, _ := s.post("/clear", nil); res.StatusCode != http.StatusSeeOther ||
		len(s.rec.List(inspect.Filter{})) != 0 {
		t.Errorf("clear with the token: %s", res.Status)
	}
}

// TestPages_RefuseOtherOrigins calls the pages through the inspector's server.
func TestPages_RefuseOtherOrigins(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil, exchange("a", "GET", "/", 200, "text/plain", "hello"))
	for _, c := range []struct {
		host, site, mode, dest string
		want                   int
	}{
		{"", "", "", "", 200}, {"localhost:4040", "same-origin", "cors", "empty", 200},
		{"[::1]:4040", "none", "navigate", "document", 200}, {"", "cross-site", "navigate", "document", 200},
		{"", "same-site", "navigate", "document", 200}, {"", "same-site", "cors", "empty", 403},
		{"", "cross-site", "no-cors", "script", 403}, {"", "cross-site", "no-cors", "image", 403},
		{"", "cross-site", "navigate", "iframe", 403}, {"evil.example:4040", "", "", "", 403},
		{"evil.example", "same-origin", "cors", "empty", 403}, {"localhost.evil.example", "", "", "", 403},
	} {
		for _, path := range []string{"/", "/requests/a", "/har"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
			must.Succeed(t, err)
			req.Host = c.host
			for name, value := range map[string]string{"Site": c.site, "Mode": c.mode, "Dest": c.dest} {
				req.Header.Set("Sec-Fetch-"+name, value)
			}
			res, err := s.http.Do(req)
			must.Succeed(t, err)
			res.Body.Close()
			if res.StatusCode != c.want {
				t.Errorf("%s at %q from %s, %s, %s: %s, want %d", path, c.host, c.site, c.mode, c.dest, res.Status,
					c.want)
			}
		}
	}
}

func TestPages_SendSafeHeaders(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil, exchange("a", "GET", "/", 200, "text/html", "<script>alert(1)</script>"))
	for _, path := range []string{"/", "/requests/a", "/none", "/har", "/requests/a/curl"} {
		res, body := s.do(http.MethodGet, path, "")
		policy := res.Header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "frame-ancestors 'none'") ||
			strings.Contains(policy, "unsafe") || res.Header.Get("X-Content-Type-Options") != "nosniff" ||
			res.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: headers %v", path, res.Header)
		}
		if strings.Contains(body, "<script>") || strings.Contains(body, " style=") ||
			strings.Contains(body, " onclick=") {
			t.Errorf("%s has an inline script or style", path)
		}
	}
}

func TestPages_NameWhatIsMissing(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil, exchange("a", "GET", "/", 200, "text/plain", "hello"))
	for path, want := range map[string]int{"/none": 404, "/requests/b": 404, "/requests/a/other/image": 404,
		"/requests/a/response/image": 404, "/requests/a/response/image?part=0": 404, "/requests/b/curl": 404,
		"/requests/b/har": 404, "/requests/b/live": 404, "/static/none.js": 404} {
		if res, body := s.do(http.MethodGet, path, ""); res.StatusCode != want || strings.Contains(body, "<nil>") {
			t.Errorf("GET %s: %s, want %d: %s", path, res.Status, want, body)
		}
	}
}

func TestList_FiltersAndLimits(t *testing.T) {
	t.Parallel()
	var all []*inspect.Exchange
	for i := range 120 {
		e := exchange("id-"+string(rune('a'+i%26))+string(rune('a'+i/26)), "GET", "/ok", 200, "text/plain", "")
		if i%40 == 0 {
			e.Request.URL, e.Response.Status, e.Caller.Pod = "/broken", 503, "other-1"
		}
		all = append(all, e)
	}
	s := newSite(t, nil, all...)
	// and the script's template
	count := func(path string) int { return strings.Count(s.get(path), "<tr data-key=") - 1 }
	for path, want := range map[string]int{"/": 100, "/?rows=500": 120, "/?status=503": 3, "/?status=5xx": 3,
		"/?status=4xx": 0, "/?path=broken": 3, "/?caller=other": 3, "/?text=broken": 3, "/?status=nonsense": 100,
		"/?rows=-1": 100} {
		if got := count(path); got != want {
			t.Errorf("GET %s: %d rows, want %d", path, got, want)
		}
	}
}

func TestLive_SendsOnlyWhatChanged(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(o *Options) { o.Limits.UpdateInterval = time.Millisecond },
		exchange("a", "GET", "/a", 200, "text/plain", ""))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/live", nil)
	must.Succeed(t, err)
	res, err := http.DefaultClient.Do(req)
	must.Succeed(t, err)
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	next := func() update {
		t.Helper()
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: {"); ok {
				var u update
				must.Succeed(t, json.Unmarshal([]byte("{"+data), &u))
				return u
			}
		}
		t.Fatal("the stream ended: ", lines.Err())
		return update{}
	}
	if u := next(); len(u.Rows) != 1 || len(u.Order) != 1 || u.Count != "1 request" {
		t.Errorf("first: %+v", u)
	}
	open := exchange("b", "POST", "/b", 0, "", "")
	open.Response, open.Done, open.Duration = nil, false, 0
	s.rec.add(open)
	if u := next(); len(u.Rows) != 1 || u.Rows[0].ID != "b" || u.Rows[0].Status != "open" || len(u.Order) != 2 {
		t.Errorf("a new one: %+v", u)
	}
	s.rec.set(exchange("b", "POST", "/b", 404, "", ""))
	if u := next(); len(u.Rows) != 1 || u.Rows[0].Status != "404" || u.Order[0] != "b" {
		t.Errorf("its answer: %+v", u)
	}
	s.rec.Clear()
	if u := next(); len(u.Rows) != 0 || len(u.Order) != 0 {
		t.Errorf("cleared: %+v", u)
	}
}

func TestLive_LimitsStreams(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(o *Options) { o.Limits.Streams = 1 })
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/live", nil)
	must.Succeed(t, err)
	res, err := http.DefaultClient.Do(req)
	must.Succeed(t, err)
	defer res.Body.Close()
	if res, _ := s.do(http.MethodGet, "/live", ""); res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a second stream: %s", res.Status)
	}
}
