// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
)

var planted = []string{secretBearer, secretCookie, secretQuery, secretForm, secretMarked, secretRaw,
	"planted/pass", "planted%2Fpass", "cGVyc29uOnBsYW50ZWQ", "planted"}

// TestPages_ShowNoSecretByDefault greps for planted secrets in every page, export and log, also
// after a replay that fails and after one whose form is refused.
func TestPages_ShowNoSecretByDefault(t *testing.T) {
	t.Parallel()
	gzipped := secretExchange()
	gzipped.ID = "gzipped"
	gzipped.Request.Header.Set("Content-Encoding", "gzip")
	gzipped.Request.Body = gzipOf(gzipped.Request.Body)
	gzipped.Response.Header.Set("Content-Encoding", "gzip")
	gzipped.Response.Body = gzipOf(gzipped.Response.Body)
	packed := secretExchange()
	packed.ID = "zstd"
	packed.Response.Header.Set("Content-Encoding", "zstd")
	packed.Response.Body = zstdOf(packed.Response.Body)
	multi := secretExchange()
	multi.ID = "multi"
	multi.Request.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	multi.Request.Body = []byte("--b\r\nContent-Disposition: form-data; name=\"password\"\r\n\r\n" + secretForm +
		"\r\n--b\r\nContent-Disposition: form-data; name=\"echo\"\r\n\r\n" + secretBearer + "\r\n--b--\r\n")
	s := newSite(t, nil, secretExchange(), gzipped, packed, multi, rawExchange())
	check := func(what, body string) {
		t.Helper()
		for _, secret := range planted {
			if at := strings.Index(body, secret); at >= 0 {
				t.Errorf("%s shows %s: …%s", what, secret, body[max(0, at-60):min(len(body), at+40)])
			}
		}
	}
	check("the list", s.get("/"))
	check("the list as HAR", s.get("/har"))
	for _, id := range []string{"secret", "gzipped", "zstd", "multi", "raw"} {
		for _, path := range []string{"", "/har", "/curl", "/edit"} {
			_, body := s.do(http.MethodGet, "/requests/"+id+path, "")
			check(id+path, body)
		}
	}
	s.rec.failReplays(errors.New("dialing with " + secretBearer + ": refused"))
	res, body := s.post("/requests/secret/replay", nil)
	if res.StatusCode != http.StatusBadGateway || !strings.Contains(body, "refused") {
		t.Errorf("a replay that fails: %s: %s", res.Status, body)
	}
	check("a replay that fails", body)
	_, body = s.post("/requests/secret/replay", url.Values{"edited": {"1"}, "method": {"GET"}, "target": {"nowhere"}})
	check("a refused form", body)
	check("the log", s.log.String())
}

func TestReveal_ShowsWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil, secretExchange(), rawExchange())
	_, body := s.post("/requests/secret", url.Values{"reveal": {"request/X-Marked"}})
	if !strings.Contains(body, secretMarked) || strings.Contains(body, secretBearer) ||
		strings.Contains(body, secretCookie) {
		t.Error("one header is asked for, and the page does not show exactly that")
	}
	_, body = s.post("/requests/secret", url.Values{"reveal": {"all"}})
	for _, secret := range []string{secretBearer, secretCookie, secretQuery, secretForm, secretMarked} {
		if !strings.Contains(body, secret) {
			t.Errorf("all are asked for, and the page lacks %s", secret)
		}
	}
	if _, body = s.post("/requests/raw", url.Values{"reveal": {"all"}}); !strings.Contains(body, secretRaw) {
		t.Error("the page lacks the raw bytes that are asked for")
	}
	for _, path := range []string{"/requests/secret/har", "/requests/secret/curl", "/har"} {
		if _, body = s.post(path, nil); !strings.Contains(body, secretBearer) || !strings.Contains(body, secretForm) {
			t.Errorf("%s with secrets lacks them", path)
		}
	}
}

// TestPages_ShowFailureOfGRPC shows the status of a call whose HTTP status is 200, without the
// secrets that its message repeats.
func TestPages_ShowFailureOfGRPC(t *testing.T) {
	t.Parallel()
	calls := []*inspect.Exchange{}
	for status, code := range []string{"0", "14", "5"} {
		e := exchange("grpc"+code, "POST", "/shop.Orders/Get", 200, "application/grpc", "")
		e.Response.Trailer = http.Header{"Grpc-Status": {code}, "Grpc-Message": {"no%20route%20for%20" + secretBearer}}
		if status == 2 { // an answer without messages has no trailer
			e.Response.Header, e.Response.Trailer = e.Response.Trailer, nil
			e.Response.Header.Set("Content-Type", "application/grpc+proto")
		}
		e.Request.Header.Set("Authorization", "Bearer "+secretBearer)
		calls = append(calls, e)
	}
	s := newSite(t, nil, calls...)
	list := s.get("/")
	for _, want := range []string{
		`class="status failed" title="UNAVAILABLE: no route for ••••" data-field="status">gRPC 14<`,
		`class="status warning" title="NOT_FOUND: no route for ••••" data-field="status">gRPC 5<`,
		`class="status good" title="OK" data-field="status">200<`,
	} {
		if strings.Count(list, want) != 1 {
			t.Errorf("the list lacks %s", want)
		}
	}
	if _, page := s.do(http.MethodGet, "/requests/grpc14", ""); !strings.Contains(page,
		`<span class="status failed">gRPC 14 UNAVAILABLE: no route for ••••</span>`) ||
		strings.Contains(page, secretBearer) {
		t.Error("the page of a failed call shows no failure, or a secret")
	}
}

func TestMasker_LeavesOrdinaryWords(t *testing.T) {
	t.Parallel()
	e := exchange("a", "GET", "/?token=name", 200, "application/json", `{"name":"dark","id":1}`)
	e.Request.Header.Set("Cookie", "theme=dark; a=1; b=name")
	if body := renderedText(e); !strings.Contains(body, `"name": "dark"`) {
		t.Errorf("short values are masked in the body: %s", body)
	}
}

func renderedText(e *inspect.Exchange) string {
	return renderBody(e.Response, newMasker(e, nil, false), "", "").Text
}
