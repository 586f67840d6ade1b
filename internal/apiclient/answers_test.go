// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiclient_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// answering answers every request with one text.
func answering(status int, kind, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		if kind == "" {
			w.Header()["Content-Type"] = nil
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

// truncated answers with a Content-Length beyond the body that it sends.
func truncated(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", fmt.Sprint(len(text)+100))
		_, _ = io.WriteString(w, text)
	}
}

const goodPage = `{"endpoints":[{"id":"ep-1","url":"http://a.b"}],"uri":"x","next_page_uri":null,"resource_version":"7-3","account_id":"ac-1","store_id":"st-1"}`

// TestList_RefusesIncompleteAnswers: an empty but successful list would delete the world.
func TestList_RefusesIncompleteAnswers(t *testing.T) {
	t.Parallel()
	const json = "application/json"
	for name, c := range map[string]struct {
		h     http.HandlerFunc
		code  account.Code
		names string
	}{
		"HTML": {answering(200, "text/html", "<html>Welcome</html>"), account.CodeBadAnswer,
			"200 with text/html"},
		"HTML called JSON": {answering(200, json, "<html>"), account.CodeBadAnswer, "200 with application/json"},
		"empty":            {answering(200, json, ""), account.CodeBadAnswer, "200"},
		"no content type":  {answering(200, "", "{}"), account.CodeBadAnswer, "no content type"},
		"null":             {answering(200, json, "null"), account.CodeBadAnswer, "list that was asked for"},
		"another object":   {answering(200, json, "{}"), account.CodeBadAnswer, "list that was asked for"},
		"another list": {answering(200, json, `{"operators":[]}`), account.CodeBadAnswer,
			"list that was asked for"},
		"a null list": {answering(200, json, `{"endpoints":null}`), account.CodeBadAnswer,
			"list that was asked for"},
		"a list":      {answering(200, json, `[]`), account.CodeBadAnswer, "200 with application/json"},
		"half":        {answering(200, json, goodPage[:40]), account.CodeBadAnswer, "200 with application/json"},
		"cut":         {truncated(goodPage[:40]), account.CodeBadAnswer, "unexpected EOF"},
		"two values":  {answering(200, json, goodPage+goodPage), account.CodeBadAnswer, "200"},
		"wrong types": {answering(200, json, `{"endpoints":[{"id":7}]}`), account.CodeBadAnswer, "200"},
		"a bad version": {answering(200, json, `{"endpoints":[],"resource_version":"x"}`), account.CodeBadAnswer,
			"resource version"},
		"too large": {answering(200, json, `{"endpoints":[],"x":"`+strings.Repeat("x", 64<<20)+`"}`),
			account.CodeBadAnswer, "more than"},
		"a redirect": {answering(302, "text/html", ""), account.CodeBadAnswer, "302 with text/html"},
		"no content": {answering(204, json, ""), account.CodeBadAnswer, "204"},
		"a proxy's 502": {answering(502, "text/html", "<html>Bad gateway"), account.CodeBadAnswer,
			"502 with text/html"},
		"JSON of another": {answering(500, json, `{"error":"x"}`), account.CodeBadAnswer, "500 with application/json"},
		"half an error":   {answering(500, json, `{"error_code":"ERR_FL_10`), account.CodeBadAnswer, "500"},
		"an error of the API": {answering(403, json, `{"error_code":"ERR_FL_1020","msg":"no","details":{"a":"b"}}`),
			account.CodeScope, "no"},
		"an unknown code": {answering(418, json, `{"error_code":"ERR_FL_9999","msg":"new"}`), "ERR_FL_9999", "new"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list, err := serve(t, c.h).ListEndpoints(t.Context(), account.EndpointFilter{})
			storetest.MustCode(t, err, c.code)
			if list != nil || !strings.Contains(err.Error(), c.names) {
				t.Errorf("list %v, error %q does not name %q", list, err, c.names)
			}
		})
	}
	list, err := serve(t, answering(200, "application/json; charset=utf-8", goodPage)).ListEndpoints(t.Context(),
		account.EndpointFilter{})
	storetest.Must(t, err)
	storetest.Equal(t, "good", list.Endpoints[0].ID+list.Version.String(), "ep-17-3")
	list, err = serve(t, answering(200, "application/json", `{"endpoints":[]}`)).ListEndpoints(t.Context(),
		account.EndpointFilter{})
	storetest.Must(t, err)
	storetest.Equal(t, "an API without versions", list.Version, account.ResourceVersion{})
}

func TestErrors_KeepStatusAndDetails(t *testing.T) {
	t.Parallel()
	c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "7")
		answering(429, "application/json",
			`{"error_code":"ERR_FL_1080","msg":"slow down","details":{"operation_id":"rq-1"},"errors":[{"field":"f","value":"v","rule":"r"}]}`)(w, r)
	}))
	_, err := c.Endpoint(t.Context(), "x")
	var e *account.Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v", err)
	}
	storetest.Equal(t, "error", fmt.Sprint(e.HTTPStatus(), e.Details["operation_id"], e.Details["retry_after"],
		e.Fields),
		"429rq-17[f \"v\": r]")
}

func TestList_FailsWithAnyPage(t *testing.T) {
	t.Parallel()
	page := func(next, accountID string) string {
		return fmt.Sprintf(`{"endpoints":[],"next_page_uri":%q,"account_id":%q}`, next, accountID)
	}
	first := page("https://other.host/endpoints?before_id=2", "ac-1")
	for name, second := range map[string]http.HandlerFunc{
		"error":           answering(503, "application/json", `{"error_code":"ERR_FL_1090","msg":"x"}`),
		"gone":            answering(410, "application/json", `{"error_code":"ERR_FL_1070","msg":"x"}`),
		"HTML":            answering(200, "text/html", ""),
		"another account": answering(200, "application/json", page("", "ac-2")),
		"no progress":     answering(200, "application/json", page("https://x/endpoints?before_id=2", "ac-1")),
		"elsewhere":       answering(200, "application/json", page("https://x/else?before_id=3", "ac-1")),
		"a loop":          answering(200, "application/json", page("https://x/endpoints?limit=1000", "ac-1")),
		"a bad address":   answering(200, "application/json", page("https://x/%zz", "ac-1")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("before_id") == "2" {
					second(w, r)
					return
				}
				answering(200, "application/json", first)(w, r)
			}))
			if list, err := c.ListEndpoints(t.Context(), account.EndpointFilter{}); err == nil || list != nil {
				t.Errorf("list %+v, %v", list, err)
			}
		})
	}
}

func TestClient_FollowsNoRedirects(t *testing.T) {
	t.Parallel()
	followed := false
	c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stolen" {
			followed = true
		}
		http.Redirect(w, r, "/stolen", http.StatusTemporaryRedirect)
	}))
	_, err := c.Endpoint(t.Context(), "x")
	storetest.MustCode(t, err, account.CodeBadAnswer)
	storetest.Equal(t, "followed", followed, false)
}

func TestWatch_RefusesOtherAnswers(t *testing.T) {
	t.Parallel()
	open := func(h http.Handler, adjust ...func(*apiclient.Options)) (*apiclient.Watch, error) {
		w, err := serve(t, h, adjust...).WatchEndpoints(t.Context(), account.EndpointFilter{},
			account.ResourceVersion{Epoch: 7, Seq: 3})
		if w != nil {
			t.Cleanup(w.Close)
		}
		return w, err
	}
	if _, err := open(answering(200, "application/json", goodPage)); !errors.Is(err, apiclient.ErrWatchUnsupported) {
		t.Errorf("a list: %v", err)
	}
	for _, broken := range []string{"", goodPage[:len(goodPage)/2], `{"error_code":"ERR_FL_1099"}`} {
		_, err := open(answering(200, "application/json", broken))
		storetest.MustCode(t, err, account.CodeBadAnswer)
	}
	_, err := open(answering(200, "text/html", ""))
	storetest.MustCode(t, err, account.CodeBadAnswer)
	_, err = open(answering(410, "application/json", `{"error_code":"ERR_FL_1070","msg":"x"}`))
	storetest.MustCode(t, err, account.CodeGone)
	const added = `{"type":"ADDED","resource_version":"7-4","endpoint":{"id":"ep-1"}}` + "\n"
	for name, c := range map[string]struct {
		lines string
		code  account.Code
		cause error
	}{
		"a clean end": {"", account.CodeUnreachable, io.EOF},
		"half a line": {`{"type":"ADDED"`, account.CodeUnreachable, io.ErrUnexpectedEOF},
		"no JSON":     {"<html>\n", account.CodeBadAnswer, nil},
		"an unknown type": {`{"type":"RENAMED","resource_version":"7-4","endpoint":{"id":"ep-1"}}` + "\n",
			account.CodeBadAnswer, nil},
		"no endpoint": {`{"type":"DELETED","resource_version":"7-4"}` + "\n", account.CodeBadAnswer, nil},
		"an empty endpoint": {`{"type":"DELETED","resource_version":"7-4","endpoint":{}}` + "\n", account.CodeBadAnswer,
			nil},
		"no version":          {`{"type":"BOOKMARK"}` + "\n", account.CodeBadAnswer, nil},
		"a line without end":  {strings.Repeat("x", 2<<20), account.CodeBadAnswer, nil},
		"an empty line":       {"\n", account.CodeBadAnswer, nil},
		"an error for a line": {`{"error_code":"ERR_FL_1099"}` + "\n", account.CodeBadAnswer, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := open(answering(200, "application/x-ndjson", added+c.lines))
			storetest.Must(t, err)
			e, err := w.Next()
			storetest.Must(t, err)
			storetest.Equal(t, "first", e.Endpoint.ID, "ep-1")
			_, err = w.Next()
			storetest.MustCode(t, err, c.code)
			if c.cause != nil && !errors.Is(err, c.cause) {
				t.Errorf("error %v, want %v", err, c.cause)
			}
			if strings.Contains(err.Error(), "unexpected EOF") {
				t.Errorf("error %v is not in words", err)
			}
		})
	}
}

func TestClient_TimesOutSilentServers(t *testing.T) {
	t.Parallel()
	silent := func(status int, kind string) http.HandlerFunc { // status 0: without a head
		return func(w http.ResponseWriter, r *http.Request) {
			if status != 0 {
				w.Header().Set("Content-Type", kind)
				w.WriteHeader(status)
				_ = http.NewResponseController(w).Flush()
			}
			<-r.Context().Done()
		}
	}
	c := serve(t, silent(0, ""), func(o *apiclient.Options) { o.Timeout = 50 * time.Millisecond })
	_, err := c.ListEndpoints(t.Context(), account.EndpointFilter{})
	storetest.MustCode(t, err, account.CodeUnreachable)
	_, err = c.WatchEndpoints(t.Context(), account.EndpointFilter{}, account.ResourceVersion{})
	storetest.MustCode(t, err, account.CodeUnreachable)
	if !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("error %v", err)
	}
	for _, status := range []int{200, 500} {
		half := serve(t, silent(status, "application/json"), func(o *apiclient.Options) {
			o.Timeout = 50 * time.Millisecond
		})
		_, err = half.WatchEndpoints(t.Context(), account.EndpointFilter{}, account.ResourceVersion{})
		storetest.MustCode(t, err, account.CodeUnreachable)
	}
	talker := serve(t, silent(200, "application/x-ndjson"), func(o *apiclient.Options) {
		o.WatchIdleTimeout = 50 * time.Millisecond
	})
	w, err := talker.WatchEndpoints(t.Context(), account.EndpointFilter{}, account.ResourceVersion{})
	storetest.Must(t, err)
	_, err = w.Next()
	storetest.MustCode(t, err, account.CodeUnreachable)
	if !strings.Contains(err.Error(), "sent nothing for 50ms") {
		t.Errorf("error %v", err)
	}
}

// TestWatch_IdleTimeoutClosesIdleConnections requires that after the timeout of a watch no
// connection that is idle at that time carries another request: a silent server has usually lost
// all of them.
func TestWatch_IdleTimeoutClosesIdleConnections(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen, frozen := map[string]bool{}, false
	c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		old := frozen && seen[r.RemoteAddr]
		if !frozen {
			seen[r.RemoteAddr] = true
		}
		mu.Unlock()
		watch := r.URL.Query().Has("watch")
		if watch && !old {
			w.Header().Set("Content-Type", "application/x-ndjson")
			_ = http.NewResponseController(w).Flush()
		}
		if watch || old {
			<-r.Context().Done()
			return
		}
		answering(200, "application/json", goodPage)(w, r)
	}), func(o *apiclient.Options) { o.WatchIdleTimeout = 50 * time.Millisecond })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // less than a request waits for its answer
	defer cancel()
	w, err := c.WatchEndpoints(ctx, account.EndpointFilter{}, account.ResourceVersion{})
	storetest.Must(t, err)
	_, err = c.ListEndpoints(ctx, account.EndpointFilter{}) // its connection stays, idle
	storetest.Must(t, err)
	mu.Lock()
	frozen = true
	storetest.Equal(t, "connections", len(seen), 2)
	mu.Unlock()
	_, err = w.Next()
	storetest.MustCode(t, err, account.CodeUnreachable)
	w, err = c.WatchEndpoints(ctx, account.EndpointFilter{}, account.ResourceVersion{})
	storetest.Must(t, err)
	w.Close()
}

func TestUnreachable_EqualCausesHaveEqualTexts(t *testing.T) {
	t.Parallel()
	c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.(*tls.Conn).NetConn().(*net.TCPConn).SetLinger(0)
		_ = conn.(*tls.Conn).NetConn().Close()
	}))
	_, first := c.ListObjects(t.Context(), "/kubernetes_operators", "operators", nil)
	_, second := c.ListObjects(t.Context(), "/kubernetes_operators", "operators", nil)
	if first == nil || second == nil || first.Error() != second.Error() || !strings.Contains(first.Error(), "reset") {
		t.Errorf("errors %q and %q", first, second)
	}
}
