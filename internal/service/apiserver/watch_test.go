// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/apiserver"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// watcher reads a watch line by line.
type watcher struct {
	t     *testing.T
	body  io.ReadCloser
	lines *bufio.Scanner
}

func (a *api) watch(key string, v account.ResourceVersion, more string) *watcher {
	a.t.Helper()
	res, err := a.srv.Client().Do(a.request("GET", "/endpoints?watch=true&resource_version="+v.String()+more, key, ""))
	storetest.Must(a.t, err)
	if kind := res.Header.Get("Content-Type"); res.StatusCode != http.StatusOK || kind != "application/x-ndjson" {
		a.t.Fatalf("watch: %s, %s", res.Status, kind)
	}
	if res.Header.Get("Content-Encoding") != "" || res.Uncompressed {
		a.t.Fatal("the watch is compressed")
	}
	w := &watcher{t: a.t, body: res.Body, lines: bufio.NewScanner(res.Body)}
	a.t.Cleanup(func() { _ = w.body.Close() })
	return w
}

// next is the next line; ok is false when the watch ended.
func (w *watcher) next() (e account.EndpointEvent, ok bool) {
	w.t.Helper()
	if !w.lines.Scan() {
		return e, false
	}
	storetest.Must(w.t, json.Unmarshal(w.lines.Bytes(), &e))
	return e, true
}

// nextChange skips bookmarks.
func (w *watcher) nextChange() account.EndpointEvent {
	w.t.Helper()
	for {
		e, ok := w.next()
		if !ok {
			w.t.Fatalf("the watch ended: %v", w.lines.Err())
		}
		if e.Type != account.Bookmark {
			return e
		}
	}
}

// ended waits for the end of the watch, which must be clean.
func (w *watcher) ended() {
	w.t.Helper()
	for w.lines.Scan() {
	}
	storetest.Must(w.t, w.lines.Err())
}

func TestWatch_ContinuesFromList(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	session := a.Session()
	v := a.List().Version
	old := a.Bind(session, "http://old.demo").Endpoint
	w := a.watch(a.admin, v, "&binding=kubernetes")
	e := w.nextChange()
	storetest.Equal(t, "type", e.Type, account.Added)
	storetest.Equal(t, "uri", e.Endpoint.URI, base+"/endpoints/"+old.ID)
	storetest.Equal(t, "session's uri", e.Endpoint.TunnelSession.URI, base+"/tunnel_sessions/"+session)
	live := a.Bind(session, "http://live.demo").Endpoint
	storetest.Equal(t, "live", w.nextChange().Endpoint.ID, live.ID)
	storetest.Must(t, a.Store.EndSession(t.Context(), a.AccountID, session, account.SessionEnd{}))
	for range 2 {
		e = w.nextChange()
		storetest.Equal(t, "type", e.Type, account.Modified)
		storetest.Equal(t, "status", e.Endpoint.Status, account.StatusOffline)
		storetest.Equal(t, "object's version", e.Endpoint.ResourceVersion, e.ResourceVersion)
	}
	// Reconnected where it was, it misses nothing and repeats nothing.
	storetest.Must(t, w.body.Close())
	a.Clock.Step(store.DefaultGrace)
	storetest.Must(t, a.Store.Sweep(t.Context()))
	w = a.watch(a.admin, e.ResourceVersion, "")
	for i := range int64(2) {
		gone := w.nextChange()
		storetest.Equal(t, "type", gone.Type, account.Deleted)
		storetest.Equal(t, "version", gone.ResourceVersion.Seq, e.ResourceVersion.Seq+1+i)
	}
}

func TestWatch_ContinuesAfterRestart(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	session := a.Session()
	v := a.List().Version
	a.Bind(session, "http://a.demo")
	w := a.watch(a.admin, v, "")
	v = w.nextChange().ResourceVersion
	storetest.Must(t, w.body.Close())
	a.stop()
	a.Restart() // everything goes offline
	b := &api{Fixture: a.Fixture, t: t, admin: a.admin, log: a.log}
	b.serve(apiserver.Options{Store: a.Store, SharedOptions: httpkit.SharedOptions{BaseURL: base}})
	w = b.watch(a.admin, v, "")
	e := w.nextChange()
	storetest.Equal(t, "after the restart",
		fmt.Sprint(string(e.Type), " ", e.Endpoint.Status, " ", e.ResourceVersion.Seq),
		fmt.Sprint("MODIFIED offline ", v.Seq+1))
}

func TestWatch_FiltersEvents(t *testing.T) {
	t.Parallel()
	a := newAPI(t, func(o *apiserver.Options) { o.Heartbeat = 5 * time.Millisecond })
	session := a.Session()
	v := a.List().Version
	w := a.watch(a.admin, v, "&url=http://b.demo:80/")
	a.Bind(session, "http://a.demo")
	last := a.Bind(session, "http://c.demo").Endpoint.ResourceVersion
	for { // a bookmark tells of what the filter hides
		e, ok := w.next()
		if !ok || e.Type != account.Bookmark {
			t.Fatalf("got %+v", e)
		}
		if e.Endpoint != nil {
			t.Fatal("a bookmark with an endpoint")
		}
		if e.ResourceVersion == last {
			break
		}
	}
	a.Bind(session, "http://b.demo")
	storetest.Equal(t, "url", w.nextChange().Endpoint.URL, "http://b.demo")
}

func TestWatch_RefusesInvalid(t *testing.T) {
	t.Parallel()
	a := newAPI(t, func(o *apiserver.Options) { o.Limits.WatchesPerAccount = 2 })
	v := a.Bind(a.Session(), "http://a.demo").Endpoint.ResourceVersion
	at := func(v account.ResourceVersion) string { return "/endpoints?watch=true&resource_version=" + v.String() }
	if rules := a.get("/endpoints?watch=true").want(400, account.CodeInvalid).rules(); rules["resource_version"] == "" {
		t.Errorf("rules %v", rules)
	}
	a.get(at(v)+"&limit=3").want(400, account.CodeInvalid)
	a.get(at(v)+"&before_id=x").want(400, account.CodeInvalid)
	a.get(at(account.ResourceVersion{Epoch: v.Epoch, Seq: v.Seq + 1})).want(410, account.CodeGone)
	a.get(at(account.ResourceVersion{Epoch: v.Epoch + 1, Seq: v.Seq})).want(410, account.CodeGone)
	a.Clock.Step(store.DefaultEventRetention)
	storetest.Must(t, a.Store.Sweep(t.Context()))
	a.get(at(account.ResourceVersion{Epoch: v.Epoch})).want(410, account.CodeGone)
	first := a.watch(a.admin, v, "")
	a.watch(a.key(a.AccountID, account.ScopeOperator), v, "")
	if after := a.get(at(v)).want(429, account.CodeTooMany).header.Get("Retry-After"); after == "" {
		t.Error("a 429 without Retry-After")
	}
	other, _ := a.NewAccount("other")
	// another account has its own limit
	a.watch(a.key(other, account.ScopeRead), account.ResourceVersion{Epoch: v.Epoch}, "")
	storetest.Must(t, first.body.Close())
	for { // the place is free when the server saw the end
		res, err := a.srv.Client().Do(a.request("GET", at(v), a.admin, ""))
		storetest.Must(t, err)
		defer func() { _ = res.Body.Close() }()
		if res.StatusCode == http.StatusOK {
			return
		}
	}
}

func TestWatch_EndsWithKey(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	key, secret, err := a.Store.IssueAPIKey(t.Context(), a.AccountID, "", []account.Scope{account.ScopeRead}, nil)
	storetest.Must(t, err)
	soon := a.Clock.Now().Add(time.Minute)
	_, expiring, err := a.Store.IssueAPIKey(t.Context(), a.AccountID, "", []account.Scope{account.ScopeRead}, &soon)
	storetest.Must(t, err)
	v := a.List().Version
	doomed, dying, staying := a.watch(secret, v, ""), a.watch(expiring, v, ""), a.watch(a.admin, v, "")
	began := time.Now()
	storetest.Must(t, a.Store.DeleteAPIKey(t.Context(), account.Caller{AccountID: a.AccountID}, key.ID))
	doomed.ended()
	if took := time.Since(began); took > time.Second {
		t.Errorf("the watch lived %s after its key", took)
	}
	a.Clock.Step(time.Hour)
	dying.ended()
	a.Bind(a.Session(), "http://a.demo")
	storetest.Equal(t, "the other watch", staying.nextChange().Type, account.Added)
}

func TestHandler_EndRevokedWatches(t *testing.T) {
	t.Parallel()
	a := newAPI(t, func(o *apiserver.Options) { o.Limits.KeyCheckInterval = time.Hour })
	storetest.Must(t, a.api.EndRevokedWatches(t.Context())) // without a watch
	key, secret, err := a.Store.IssueAPIKey(t.Context(), a.AccountID, "", []account.Scope{account.ScopeRead}, nil)
	storetest.Must(t, err)
	v := a.List().Version
	doomed, staying := a.watch(secret, v, ""), a.watch(a.admin, v, "")
	storetest.Must(t, a.Store.DeleteAPIKey(t.Context(), account.Caller{AccountID: a.AccountID}, key.ID))
	storetest.Must(t, a.api.EndRevokedWatches(t.Context()))
	a.Bind(a.Session(), "http://a.demo")
	if e, ok := doomed.next(); ok {
		t.Errorf("the watch of a deleted key goes on with %+v", e)
	}
	storetest.Equal(t, "the other watch", staying.nextChange().Type, account.Added)
}

func TestWatch_EndsWithServer(t *testing.T) {
	t.Parallel()
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%t", h2), func(t *testing.T) {
			a := newAPI(t)
			if h2 {
				a.useHTTP2()
			}
			w := a.watch(a.admin, a.List().Version, "")
			a.stop()
			w.ended()
		})
	}
}

func TestWatch_HidesOtherAccounts(t *testing.T) {
	t.Parallel()
	a := newAPI(t, func(o *apiserver.Options) { o.Heartbeat = 5 * time.Millisecond })
	other, _ := a.NewAccount("other")
	v := a.List().Version
	w := a.watch(a.key(other, account.ScopeAdmin), v, "")
	a.Bind(a.Session(), "http://a.demo")
	for range 3 {
		e, ok := w.next()
		if !ok || e.Type != account.Bookmark || e.ResourceVersion != v {
			t.Fatalf("got %+v, want a bookmark at %s", e, v)
		}
	}
}
