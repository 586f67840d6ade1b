// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"
)

// historyTimeout is how long a client waits for an answer. It is longer than what a change waits
// for a service that cannot be reached.
const historyTimeout = historyLease + 5*time.Second

// outcome is what a client knows after a call.
type outcome int

const (
	acknowledged outcome = iota // it has happened
	refused                     // it has not
	unknown                     // it may have, or may yet
)

// answer is a service's answer to a call.
type answer struct {
	outcome
	status int
	body   []byte
}

// call calls the API of a service. The answer is checked against what a fenced service may do.
func (h *history) call(ctx context.Context, to *incarnation, key, method, path string, in any) answer {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			h.t.Error(err)
		}
		body = bytes.NewReader(raw)
	}
	ctx, cancel := context.WithTimeout(ctx, historyTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "https://"+to.addrs.Service.String()+path, body)
	if err != nil {
		h.t.Error(err)
		return answer{outcome: refused}
	}
	r.Header = http.Header{"Authorization": {"Bearer " + key}, "Service-Version": {"2"}}
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	began := time.Now()
	res, err := to.api.Do(r)
	if err != nil {
		h.counts.unknown.Add(1)
		return answer{outcome: unknown}
	}
	defer func() { _ = res.Body.Close() }()
	a := answer{status: res.StatusCode}
	if a.body, err = io.ReadAll(res.Body); err != nil {
		h.counts.unknown.Add(1)
		return answer{outcome: unknown}
	}
	fenced := to.fencedAt.Load()
	late := method != http.MethodGet && fenced != nil && began.After(*fenced)
	switch {
	case a.status/100 == 2:
		h.counts.acknowledged.Add(1)
		if late {
			h.t.Errorf("%s %s was acknowledged by %s, %s after it was fenced", method, path, to.r.host,
				began.Sub(*fenced))
		}
	case a.status >= 500:
		a.outcome = unknown // the answer to its commit may be lost
		h.counts.unknown.Add(1)
		if late {
			h.counts.fencedRefusals.Add(1)
		}
	default:
		a.outcome = refused
		h.counts.refused.Add(1)
	}
	return a
}

// objectKind is a kind of objects of the API that writers make.
type objectKind struct {
	path string
	body map[string]any // of a new one, beside its description
}

var objectKinds = []objectKind{
	{"/endpoints", nil}, {"/endpoints", nil},
	{"/api_keys", nil},
	{"/kubernetes_operators", map[string]any{"enabled_features": []string{"bindings"}}},
	{"/backends/http_response", map[string]any{"status_code": 204}},
}

// writer makes, changes and deletes objects that are its own, through any service.
type writer struct {
	h       *history
	id      int
	random  *rand.Rand
	key     string // its API key
	serial  int
	objects map[string]*object
}

// object is what a writer knows of an object.
type object struct {
	path   string          // with its id
	secret string          // of an API key
	may    map[string]bool // the descriptions that it may have; "" = it is gone
	// a call had no answer. It may have an effect later, so the object is only read from then on
	frozen bool
}

func (h *history) newWriter(i int) *writer {
	w := &writer{h: h, id: i, random: rand.New(rand.NewPCG(h.seed, uint64(100+i))), objects: map[string]*object{}}
	a := h.call(h.t.Context(), h.replicas[0].waitReady(), h.apiKey, http.MethodPost, "/api_keys", map[string]any{})
	var made struct{ Token string }
	if err := json.Unmarshal(a.body, &made); err != nil || made.Token == "" {
		h.t.Fatalf("a key for a writer: %d %s", a.status, a.body)
	}
	w.key = made.Token
	return w
}

// run writes until the faults are over.
func (w *writer) run(ctx context.Context) {
	for w.h.breaking.Load() && ctx.Err() == nil {
		if to := w.h.any(w.random); to != nil {
			w.write(ctx, to)
		}
		w.h.pause(w.random, 100*time.Millisecond)
	}
}

// write makes, changes or deletes one object, and reads it elsewhere.
func (w *writer) write(ctx context.Context, to *incarnation) {
	ids := slices.Sorted(maps.Keys(w.objects))
	if len(ids) < 4 || len(ids) < 40 && w.random.IntN(3) == 0 {
		w.create(ctx, to)
		return
	}
	o := w.objects[ids[w.random.IntN(len(ids))]]
	switch {
	case o.frozen:
	case w.random.IntN(3) == 0:
		w.delete(ctx, to, o)
	default:
		w.change(ctx, to, o)
	}
	if other := w.h.any(w.random); other != nil {
		w.check(ctx, other, o)
		if o.isGone() {
			delete(w.objects, o.path)
		}
	}
}

func (o *object) isGone() bool { return len(o.may) == 1 && o.may[""] }

func (w *writer) describe() string {
	w.serial++
	return fmt.Sprintf("writer %d write %d", w.id, w.serial)
}

// create makes an object. One whose answer is lost is not used afterwards.
func (w *writer) create(ctx context.Context, to *incarnation) {
	kind := objectKinds[w.random.IntN(len(objectKinds))]
	text := w.describe()
	body := map[string]any{"description": text}
	maps.Copy(body, kind.body)
	if kind.path == "/endpoints" {
		body["url"] = fmt.Sprintf("http://e%d.w%d", w.serial, w.id)
		body["traffic_policy"] = generationPolicy(int64(w.serial))
	}
	a := w.h.call(ctx, to, w.key, http.MethodPost, kind.path, body)
	if a.outcome != acknowledged {
		return
	}
	var made struct{ ID, Token string }
	if err := json.Unmarshal(a.body, &made); err != nil || made.ID == "" {
		w.h.t.Errorf("POST %s: %d %s", kind.path, a.status, a.body)
		return
	}
	o := &object{path: kind.path + "/" + made.ID, secret: made.Token, may: map[string]bool{text: true}}
	w.objects[o.path] = o
	w.confirm(kind.path, a)
}

// change writes another description.
func (w *writer) change(ctx context.Context, to *incarnation, o *object) {
	text := w.describe()
	a := w.h.call(ctx, to, w.key, http.MethodPatch, o.path, map[string]any{"description": text})
	w.learn(o, "PATCH", text, a)
	if a.outcome == acknowledged {
		w.confirm(o.path, a)
	}
}

func (w *writer) delete(ctx context.Context, to *incarnation, o *object) {
	a := w.h.call(ctx, to, w.key, http.MethodDelete, o.path, nil)
	w.learn(o, "DELETE", "", a)
	if a.outcome != acknowledged || o.secret == "" {
		return
	}
	for _, r := range w.h.replicas {
		if now := r.now.Load(); now != nil {
			w.h.counts.checks.Add(1)
			if got := w.h.call(ctx, now, o.secret, http.MethodGet, "/endpoints?limit=1", nil); got.status/100 == 2 {
				w.h.t.Errorf("a deleted key is admitted by %s", r.host)
			}
		}
	}
}

// learn records what a call has made of an object.
func (w *writer) learn(o *object, method, text string, a answer) {
	switch {
	case a.outcome == acknowledged:
		o.may = map[string]bool{text: true}
	case a.outcome == unknown:
		o.may[text], o.frozen = true, true
	case a.status == http.StatusNotFound:
		w.expect(o, "", method)
	}
}

// expect checks that an object may be as it was found.
func (w *writer) expect(o *object, found, where string) {
	if !o.may[found] {
		w.h.t.Errorf("%s has the description %q (%s), which is none of %v: an acknowledged write is lost", o.path,
			found,
			where, slices.Sorted(maps.Keys(o.may)))
	}
}

// check reads an object from a service.
func (w *writer) check(ctx context.Context, at *incarnation, o *object) (answered bool) {
	a := w.h.call(ctx, at, w.key, http.MethodGet, o.path, nil)
	switch {
	case a.outcome == acknowledged:
		var got struct{ Description string }
		if err := json.Unmarshal(a.body, &got); err != nil {
			w.h.t.Errorf("GET %s: %s", o.path, a.body)
		}
		w.expect(o, got.Description, at.r.host)
	case a.status == http.StatusNotFound:
		w.expect(o, "", at.r.host)
	default:
		return false
	}
	w.h.counts.checks.Add(1)
	return true
}

// checkAll reads all objects from a service that answers.
func (w *writer) checkAll(ctx context.Context, at *incarnation) {
	for _, path := range slices.Sorted(maps.Keys(w.objects)) {
		for !w.check(ctx, at, w.objects[path]) {
			if !w.h.pause(w.random, 50*time.Millisecond) {
				return
			}
		}
	}
}

// confirm records the version of an endpoint that a service has acknowledged.
func (w *writer) confirm(path string, a answer) {
	if len(path) >= 10 && path[:10] == "/endpoints" {
		w.h.versions.confirm(a.body)
	}
}

// generationPolicy is a traffic policy that answers with a number.
func generationPolicy(n int64) string {
	return fmt.Sprintf("on_http_request:\n- actions:\n  - {type: custom-response, config: {body: %q}}\n",
		fmt.Sprint("generation ", n))
}
