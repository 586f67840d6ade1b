// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// fill sets every exported field below v to a value that is not zero.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch at := v.Addr().Interface().(type) {
	case *time.Time:
		*at = time.Date(2026, 5, 4, 3, 2, 1, 987654321, time.UTC)
		return
	case *account.ResourceVersion:
		*at = account.ResourceVersion{Epoch: 7, Seq: 8}
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("<ü> & \"x\"")
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(42)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"a": "b"}))
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	default:
		t.Fatalf("the test cannot fill a %s", v.Type())
	}
}

// TestWire_KeepsAllFields fails for a new field of Holder, account.Endpoint, Query or Change that
// does not reach the peer.
func TestWire_KeepsAllFields(t *testing.T) {
	t.Parallel()
	var h Holder
	fill(t, reflect.ValueOf(&h).Elem())
	b, err := encodeHolders([]Holder{h})
	must.Succeed(t, err)
	got, err := decodeHolders(b)
	if d := cmp.Diff([]Holder{h}, got); d != "" || err != nil {
		t.Errorf("holders: %v %s", err, d)
	}
	var q Query
	fill(t, reflect.ValueOf(&q).Elem())
	b, _ = json.Marshal(q)
	if got, err := decodeQuery(b); err != nil || !cmp.Equal(got, q) {
		t.Errorf("query: %v %s", err, cmp.Diff(q, got))
	}
	if keyOf(q).labels == "" {
		t.Error("the key of a question has no labels")
	}
	var c Change
	fill(t, reflect.ValueOf(&c).Elem())
	b, _ = json.Marshal(c)
	if got, err := decodeChange(b); err != nil || !cmp.Equal(got, c) {
		t.Errorf("change: %v %s", err, cmp.Diff(c, got))
	}
}

func TestQueryKey_TellsQuestionsApart(t *testing.T) {
	t.Parallel()
	one := keyOf(Query{Pool: Pool{AccountID: "a"}, Labels: map[string]string{"a": "b", "c": "d"}})
	if one != keyOf(Query{Pool: Pool{AccountID: "a"}, Labels: map[string]string{"c": "d", "a": "b"}}) {
		t.Error("the order of labels counts")
	}
	if one == keyOf(Query{Pool: Pool{AccountID: "a"}, Labels: map[string]string{"a": `b","c"="d`}}) {
		t.Error("two sets of labels are one key")
	}
}

func FuzzDecode(f *testing.F) {
	b, _ := encodeHolders([]Holder{testHolder("ep-1")})
	f.Add(b)
	b, _ = json.Marshal(testChange())
	f.Add(b)
	b, _ = json.Marshal(testQuery())
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		if all, err := decodeHolders(b); err == nil {
			for _, h := range all {
				if h.Endpoint.ID == "" || h.Endpoint.AccountID == "" {
					t.Errorf("a holder without id: %q", b)
				}
			}
			if again, err := encodeHolders(all); err != nil {
				t.Errorf("%v: %q", err, again)
			}
		}
		if c, err := decodeChange(b); err == nil && c.Kind == "" {
			t.Errorf("a change without a kind: %q", b)
		}
		if q, err := decodeQuery(b); err == nil {
			_ = keyOf(q)
		}
	})
}
