// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ngrok/ngrok-api-go/v7"
)

// clientOf is what the clients of all resources have that can be made through the API.
type clientOf[C, U, I any] interface {
	Create(ctx context.Context, arg *C) (*I, error)
	Get(ctx context.Context, id string) (*I, error)
	List(paging *ngrok.Paging) ngrok.Iter[*I]
	Update(ctx context.Context, arg *U) (*I, error)
	Delete(ctx context.Context, id string) error
}

// resource is how one is made and changed, and what of it the service has no meaning for.
type resource[C, U, I any] struct {
	path, key string // of lists
	client    clientOf[C, U, I]
	create    func(n int) C
	update    U
	ignored   []string // fields that are sent and not answered
	absent    []string // fields of the client that answers do not have
	unlisted  string   // the field that lists leave out
}

// live takes objects through their whole life, only with the client's types.
func (r resource[C, U, I]) live(t *testing.T, a *tenant) {
	t.Helper()
	before := len(all(a, r.client.List(nil)))
	if empty := a.raw(r.path)[r.key]; before == 0 && !reflect.DeepEqual(empty, []any{}) {
		t.Errorf("an empty list is %v, not []", empty)
	}
	var made []string
	for n := range 3 {
		made = append(made, r.make(t, a, n))
	}
	r.list(t, a, made, before)
	r.change(t, a, made[1])
	for _, id := range made {
		if err := r.client.Delete(a.ctx, id); err != nil {
			t.Fatalf("delete: %v", err)
		}
		_, err := r.client.Get(a.ctx, id)
		wantNotFound(t, "get after delete", err)
		wantNotFound(t, "second delete", r.client.Delete(a.ctx, id))
	}
	if left := len(all(a, r.client.List(nil))); left != before {
		t.Errorf("%d objects are left, want %d", left, before)
	}
}

// make creates an object and returns its id.
func (r resource[C, U, I]) make(t *testing.T, a *tenant, n int) string {
	t.Helper()
	sent := r.create(n)
	item, err := r.client.Create(a.ctx, &sent)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	id := fieldsOf(t, item)["id"].(string)
	answer := a.raw(r.path + "/" + id)
	for _, problem := range differences("", fieldsOf(t, sent), answer, r.ignored) {
		t.Errorf("what was made: %s", problem)
	}
	got, err := r.client.Get(a.ctx, id)
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	for what, known := range map[string]*I{"create": item, "get": got} {
		for _, problem := range differences("", fieldsOf(t, known), answer, []string{"token"}) {
			t.Errorf("what the client knows after %s: %s", what, problem)
		}
	}
	if want := baseURL + r.path + "/" + id; answer["uri"] != want {
		t.Errorf("uri is %v, want %s", answer["uri"], want)
	}
	created, err := time.Parse(time.RFC3339, fmt.Sprint(answer["created_at"]))
	if err != nil || created.Location() != time.UTC {
		t.Errorf("created_at is %v: want RFC 3339 in UTC", answer["created_at"])
	}
	var absent []string
	for name := range jsonFields(reflect.TypeFor[I]()) {
		if _, there := answer[name]; !there {
			absent = append(absent, name)
		}
	}
	slices.Sort(absent)
	if !slices.Equal(absent, r.absent) {
		t.Errorf("answers have no %v, want %v to be what they have not", absent, r.absent)
	}
	return id
}

// list reads the objects in pages of two: newest first, each once, as they are.
func (r resource[C, U, I]) list(t *testing.T, a *tenant, made []string, before int) {
	t.Helper()
	items := all(a, r.client.List(&ngrok.Paging{Limit: ngrok.String("2")}))
	if len(items) != before+len(made) {
		t.Fatalf("the list has %d objects, want %d", len(items), before+len(made))
	}
	for i, item := range items[:len(made)] {
		want := made[len(made)-1-i]
		got, err := r.client.Get(a.ctx, want)
		if err != nil {
			t.Fatal(err)
		}
		one := fieldsOf(t, got)
		delete(one, r.unlisted)
		if listed := fieldsOf(t, item); !reflect.DeepEqual(listed, one) {
			t.Errorf("listed at %d: %v\nread alone: %v", i, listed, one)
		}
	}
	after := all(a, r.client.List(&ngrok.Paging{BeforeID: &made[1]}))
	if len(after) != before+1 {
		t.Errorf("after before_id the list has %d objects, want %d", len(after), before+1)
	}
	page := a.raw(r.path + "?limit=2")
	next, err := url.Parse(fmt.Sprint(page["next_page_uri"]))
	if err != nil || next.Scheme+"://"+next.Host+next.Path != baseURL+r.path || next.Query().
		Get("before_id") != made[1] ||
		next.Query().Get("limit") != "2" {
		t.Errorf("next_page_uri of a page is %v, want it after %s with the same limit", page["next_page_uri"], made[1])
	}
	if page["uri"] != baseURL+r.path {
		t.Errorf("uri of a page is %v", page["uri"])
	}
	if next, there := a.raw(r.path)["next_page_uri"]; next != nil || !there {
		t.Errorf("next_page_uri of the last page is %v, want null", next)
	}
}

// change updates an object: what was sent is changed, all else stays. The same again changes
// nothing.
func (r resource[C, U, I]) change(t *testing.T, a *tenant, id string) {
	t.Helper()
	was := a.raw(r.path + "/" + id)
	for range 2 {
		update := r.update
		reflect.ValueOf(&update).Elem().FieldByName("ID").SetString(id)
		sent := fieldsOf(t, update)
		delete(sent, "id") // the client puts it into the path
		item, err := r.client.Update(a.ctx, &update)
		if err != nil {
			t.Fatalf("update: %v", err)
		}
		answer := a.raw(r.path + "/" + id)
		for _, problem := range slices.Concat(differences("", sent, answer, r.ignored),
			differences("", fieldsOf(t, item), answer, nil)) {
			t.Errorf("after an update: %s", problem)
		}
		for name := range was {
			if _, changed := sent[name]; !changed && !slices.Contains([]string{"updated_at", "resource_version"},
				name) &&
				!reflect.DeepEqual(was[name], answer[name]) {
				t.Errorf("an update without %s changed it from %v to %v", name, was[name], answer[name])
			}
		}
	}
	empty := new(U)
	reflect.ValueOf(empty).Elem().FieldByName("ID").SetString(id)
	was = a.raw(r.path + "/" + id)
	if _, err := r.client.Update(a.ctx, empty); err != nil {
		t.Fatalf("an update of nothing: %v", err)
	}
	if now := a.raw(r.path + "/" + id); !reflect.DeepEqual(now, was) {
		t.Errorf("an update of nothing made of %v\n%v", was, now)
	}
}

// all reads every page of a list.
func all[I any](a *tenant, it ngrok.Iter[*I]) []I {
	a.Helper()
	var items []I
	for it.Next(a.ctx) {
		items = append(items, *it.Item())
	}
	if err := it.Err(); err != nil {
		a.Fatalf("list: %v", err)
	}
	return items
}

// differences returns a problem for each sent field with another value in the answer, ignored
// fields aside.
func differences(where string, sent, answer map[string]any, ignored []string) (problems []string) {
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		want, at := sent[name], where+name
		got := answer[name]
		inner, isObject := want.(map[string]any)
		answered, _ := got.(map[string]any)
		switch {
		case slices.Contains(ignored, at):
		case isObject:
			problems = append(problems, differences(at+".", inner, answered, ignored)...)
		case !reflect.DeepEqual(want, got):
			problems = append(problems, fmt.Sprintf("%s is %v, want %v", at, got, want))
		}
	}
	return problems
}

// fieldsOf is the JSON of one of the client's types.
func fieldsOf(t *testing.T, v any) map[string]any {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}

// jsonFields are the fields of a struct of the client, by their names in JSON.
func jsonFields(of reflect.Type) map[string]reflect.StructField {
	fields := map[string]reflect.StructField{}
	for f := range of.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields[name] = f
	}
	return fields
}

// wantNotFound wants the error that the client's own helper knows.
func wantNotFound(t *testing.T, what string, err error) {
	t.Helper()
	if !ngrok.IsNotFound(err) {
		t.Errorf("%s: %v, want what IsNotFound knows", what, err)
		return
	}
	wantError(t, what, err, http.StatusNotFound)
}

// wantError wants an error of the service with the status, in the client's type.
func wantError(t *testing.T, what string, err error, status int) *ngrok.Error {
	t.Helper()
	var e *ngrok.Error
	if !errors.As(err, &e) || int(e.StatusCode) != status || !strings.HasPrefix(e.ErrorCode, "ERR_FL_") ||
		e.Msg == "" ||
		!strings.HasPrefix(e.OperationID(), "rq-") {
		t.Fatalf("%s: %#v, want status %d, a code, a message and an operation id", what, err, status)
	}
	return e
}
