// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// flushes notes what was written when it was flushed.
type flushes struct {
	http.ResponseWriter
	written strings.Builder
	at      []string
}

func (f *flushes) Write(p []byte) (int, error) { return f.written.Write(p) }
func (f *flushes) FlushError() error {
	f.at = append(f.at, f.written.String())
	return nil
}

// pieces are read one by one. Before those that have to be waited for it does what the connection
// does.
type pieces struct {
	left []string
	wait func()
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.left) == 0 {
		return 0, io.EOF
	}
	next, waits := strings.CutPrefix(p.left[0], "~")
	if waits {
		p.wait()
	}
	p.left = p.left[1:]
	return copy(b, next), nil
}

func (p *pieces) Close() error { return nil }

func TestResponseBody_FlushesBeforeWaiting(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ pieces, flushed []string }{
		"all is there":              {[]string{"a", "b", "c"}, nil},
		"the body is late":          {[]string{"~a", "b"}, []string{""}},
		"the end of it is late":     {[]string{"a", "b", "~c", "d"}, []string{"ab"}},
		"each piece is waited for":  {[]string{"~a", "~b", "~c"}, []string{"", "a", "ab"}},
		"there is none, as it says": {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, f := &flushes{ResponseWriter: httptest.NewRecorder()}, &flusher{}
			res := &http.Response{ContentLength: -1, Body: &pieces{c.pieces, f.flush}}
			prepareBody(res, out, f)
			if _, err := io.Copy(out, res.Body); err != nil {
				t.Fatal(err)
			}
			f.flush() // the connection waits for the next response, which is another exchange's
			if !slices.Equal(out.at, c.flushed) {
				t.Errorf("flushed with %q, want %q", out.at, c.flushed)
			}
			if res.ContentLength == -1 {
				t.Error("the proxy flushes by itself")
			}
		})
	}
}

// TestFlusher_FlushesOnlyTheBodyBeingRead covers a transport that gives a stream to the next
// request before the one before has read to its end.
func TestFlusher_FlushesOnlyTheBodyBeingRead(t *testing.T) {
	t.Parallel()
	before, next := &flushes{}, &flushes{}
	f := &flusher{}
	a := &responseBody{flusher: f, client: http.NewResponseController(before)}
	b := &responseBody{flusher: f, client: http.NewResponseController(next)}
	f.set(a)
	f.set(nil) // put aside
	f.flush()
	f.set(b)
	f.unset(a)
	f.flush()
	if len(before.at) != 0 || len(next.at) != 1 {
		t.Errorf("the first answer was flushed %d times, the next %d times", len(before.at), len(next.at))
	}
}
