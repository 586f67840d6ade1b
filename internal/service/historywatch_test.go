// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// versionLog is what clients have seen of an account's versions. It is safe for concurrent use.
type versionLog struct {
	t         *testing.T
	mu        sync.Mutex
	contents  map[account.ResourceVersion]string // of an endpoint at a version
	events    map[account.ResourceVersion]account.EventType
	confirmed map[account.ResourceVersion]bool // of acknowledged writes
	spans     []span
}

// span is a range of versions of which a watcher saw all events: those after from.
type span struct{ from, to account.ResourceVersion }

func newVersionLog(t *testing.T) *versionLog {
	return &versionLog{t: t, contents: map[account.ResourceVersion]string{},
		events: map[account.ResourceVersion]account.EventType{}, confirmed: map[account.ResourceVersion]bool{}}
}

// normalize returns an endpoint without what lists and watches leave out.
func normalize(raw []byte) (text, id string, v account.ResourceVersion, err error) {
	var fields map[string]any
	var known struct {
		ID              string                  `json:"id"`
		ResourceVersion account.ResourceVersion `json:"resource_version"`
	}
	if err := errors.Join(json.Unmarshal(raw, &fields), json.Unmarshal(raw, &known)); err != nil {
		return "", "", v, err
	}
	delete(fields, "traffic_policy")
	b, err := json.Marshal(fields)
	return string(b), known.ID, known.ResourceVersion, err
}

// see records an endpoint as a client has seen it, and returns it; kind is "" in a list.
func (l *versionLog) see(raw []byte, kind account.EventType) (text, id string, v account.ResourceVersion, err error) {
	if text, id, v, err = normalize(raw); err != nil {
		return "", "", v, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if before := l.contents[v]; before != "" && before != text {
		l.t.Errorf("version %s is\n%s\nand\n%s", v, before, text)
	}
	l.contents[v] = text
	if before := l.events[v]; kind != "" && before != "" && before != kind {
		l.t.Errorf("version %s is %s and %s", v, before, kind)
	}
	if kind != "" {
		l.events[v] = kind
	}
	return text, id, v, nil
}

// confirm records the answer to a write.
func (l *versionLog) confirm(raw []byte) {
	_, _, v, err := l.see(raw, "")
	if err != nil {
		l.t.Errorf("%v: %s", err, raw)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.confirmed[v] = true
}

func (l *versionLog) addSpan(s span) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spans = append(l.spans, s)
}

func (l *versionLog) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.events)
}

// check checks that each acknowledged version was seen by those who watched the log there.
func (l *versionLog) check() {
	l.mu.Lock()
	defer l.mu.Unlock()
	checked := 0
	for v := range l.confirmed {
		for _, s := range l.spans {
			if s.from.Epoch == v.Epoch && s.from.Seq < v.Seq && v.Seq <= s.to.Seq {
				if checked++; l.events[v] == "" {
					l.t.Errorf("version %s was acknowledged, and no watcher saw it", v)
				}
				break
			}
		}
	}
	if checked == 0 {
		l.t.Error("no watcher was there when a write was acknowledged: this history shows nothing")
	}
}

// list returns the content of each endpoint by its id.
func (h *history) list(
	ctx context.Context, at *incarnation,
) (all map[string]string, v account.ResourceVersion, err error) {
	a := h.call(ctx, at, h.apiKey, http.MethodGet, "/endpoints?limit=1000", nil)
	if a.outcome != acknowledged {
		return nil, v, fmt.Errorf("a list: status %d", a.status)
	}
	var page struct {
		Endpoints       []json.RawMessage
		NextPageURI     *string                 `json:"next_page_uri"`
		ResourceVersion account.ResourceVersion `json:"resource_version"`
	}
	if err := json.Unmarshal(a.body, &page); err != nil || page.NextPageURI != nil {
		return nil, v, fmt.Errorf("a list: %w: %s", err, a.body)
	}
	all = map[string]string{}
	for _, raw := range page.Endpoints {
		text, id, _, err := h.versions.see(raw, "")
		if err != nil {
			return nil, v, err
		}
		all[id] = text
	}
	return all, page.ResourceVersion, nil
}

// watcher follows the account and keeps a copy of its list. It changes the service now and then.
type watcher struct {
	h       *history
	random  *rand.Rand
	version account.ResourceVersion
	from    account.ResourceVersion // of its last list
	all     map[string]string       // content by id; nil before the first list
}

func (h *history) newWatcher(i int) *watcher {
	return &watcher{h: h, random: rand.New(rand.NewPCG(h.seed, uint64(200+i)))}
}

// run watches until all has happened and was seen.
func (w *watcher) run(ctx context.Context) {
	defer func() { w.h.versions.addSpan(span{w.from, w.version}) }()
	for ctx.Err() == nil {
		at := w.h.any(w.random)
		if at == nil || w.all == nil && !w.relist(ctx, at) {
			w.h.pause(w.random, 50*time.Millisecond)
			continue
		}
		w.h.counts.moves.Add(1)
		over, gone := w.h.settled.Load(), w.follow(ctx, at)
		if gone {
			w.h.counts.gone.Add(1)
			w.h.versions.addSpan(span{w.from, w.version})
			w.all = nil
		}
		if over && !gone && w.isLatest(ctx, at) {
			return
		}
	}
}

// relist begins anew with a list.
func (w *watcher) relist(ctx context.Context, at *incarnation) bool {
	all, v, err := w.h.list(ctx, at)
	if err != nil {
		return false
	}
	if w.version.Epoch == v.Epoch {
		w.h.t.Errorf("version %s was gone, and a new list has %s of the same epoch", w.version, v)
	}
	w.all, w.version, w.from = all, v, v
	return true
}

// isLatest reports whether nothing has happened since the last event.
func (w *watcher) isLatest(ctx context.Context, at *incarnation) bool {
	_, v, err := w.h.list(ctx, at)
	return err == nil && v == w.version
}

// follow watches at a service for a while. It reports whether the version is gone.
func (w *watcher) follow(ctx context.Context, at *incarnation) (gone bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(200+w.random.IntN(2000))*time.Millisecond)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+at.addrs.Service.String()+
		"/endpoints?watch=true&resource_version="+w.version.String(), nil)
	if err != nil {
		w.h.t.Error(err)
		return false
	}
	r.Header = http.Header{"Authorization": {"Bearer " + w.h.apiKey}, "Service-Version": {"2"}}
	res, err := at.api.Do(r)
	if err != nil {
		return false
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		w.h.pause(w.random, 100*time.Millisecond)
		return res.StatusCode == http.StatusGone
	}
	lines := bufio.NewReader(res.Body)
	for events := w.random.IntN(40); events >= 0; events-- {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return false // an incomplete line is no event
		}
		if err := w.apply(line); err != nil {
			w.h.t.Errorf("%v: %s", err, line)
			return false
		}
	}
	return false
}

// apply applies an event and checks its number.
func (w *watcher) apply(line []byte) error {
	var e struct {
		Type            account.EventType
		ResourceVersion account.ResourceVersion `json:"resource_version"`
		Endpoint        json.RawMessage
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return err
	}
	want := w.version
	if e.Type != account.Bookmark {
		want.Seq++
	}
	if e.ResourceVersion != want {
		w.h.t.Errorf("%s %s follows %s", e.Type, e.ResourceVersion, w.version)
	}
	if w.version = e.ResourceVersion; e.Type == account.Bookmark {
		return nil
	}
	text, id, v, err := w.h.versions.see(e.Endpoint, e.Type)
	if err != nil || v != e.ResourceVersion {
		return fmt.Errorf("an event of version %s: %w", v, err)
	}
	if w.all[id] = text; e.Type == account.Deleted {
		delete(w.all, id)
	}
	return nil
}
