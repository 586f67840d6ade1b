// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// startGuarded serves a handler behind Abortable, whose abort nothing calls: only the guard's check
// stops what is passed on.
func startGuarded(t testing.TB, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		guarded, r, _ := Abortable(w, r, nil, nil)
		handler(guarded, r)
	}))
	t.Cleanup(srv.Close)
	return srv
}

// endSession makes the guard refuse, without an abort.
func endSession(w http.ResponseWriter) {
	switch w := w.(type) {
	case *readerFromWriter:
		w.aborted.Store(true)
	case *abortableWriter:
		w.aborted.Store(true)
	}
}

// source calls next before each read, and before the kernel copies from its descriptor.
type source struct {
	io.Reader
	next func()
}

func (s source) Read(p []byte) (int, error) {
	s.next()
	return s.Reader.Read(p)
}

// fileSource is a source with a descriptor. The kernel's copies and Read are counted.
type fileSource struct {
	source
	kernelCopies *int
}

func (s fileSource) SyscallConn() (syscall.RawConn, error) {
	s.next()
	*s.kernelCopies++
	return s.Reader.(*os.File).SyscallConn()
}

// testFile returns an open file of the size and its content.
func testFile(t testing.TB, size int) (*os.File, []byte) {
	t.Helper()
	content := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
	path := filepath.Join(t.TempDir(), "file")
	must.Succeed(t, os.WriteFile(path, content, 0o600))
	f, err := os.Open(path)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f, content
}

const downloadSize = 1<<20 + 1000

// downloads copy downloadSize bytes of a file to a client in each way that handlers use. next is
// called before each piece; the result is how many pieces the kernel has copied.
var downloads = map[string]func(w io.Writer, f *os.File, next func()) (n int64, kernelCopies int, err error){
	"file": func(w io.Writer, f *os.File, next func()) (n int64, kernelCopies int, err error) {
		n, err = io.Copy(w, fileSource{source{f, next}, &kernelCopies})
		return n, kernelCopies, err
	},
	"part of a file": func(w io.Writer, f *os.File, next func()) (n int64, kernelCopies int, err error) {
		n, err = io.CopyN(w, fileSource{source{f, next}, &kernelCopies}, downloadSize)
		return n, kernelCopies, err
	},
	"reader": func(w io.Writer, f *os.File, next func()) (n int64, kernelCopies int, err error) {
		n, err = io.Copy(w, source{f, next})
		return n, 0, err
	},
	"part of a reader": func(w io.Writer, f *os.File, next func()) (n int64, kernelCopies int, err error) {
		n, err = io.CopyN(w, source{f, next}, downloadSize)
		return n, 0, err
	},
	"writes": func(w io.Writer, f *os.File, next func()) (n int64, kernelCopies int, err error) {
		n, err = io.Copy(struct{ io.Writer }{w}, source{f, next})
		return n, 0, err
	},
}

func TestGuard_EndsDownloadBetweenPieces(t *testing.T) {
	t.Parallel()
	for name, download := range downloads {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, _ := testFile(t, downloadSize)
			type result struct {
				n          int64
				err, cause error
			}
			done := make(chan result, 1)
			const served = 4 // calls of next: the last of them ends the session
			srv := startGuarded(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Length", strconv.Itoa(downloadSize))
				calls := 0
				n, _, err := download(w, f, func() {
					if calls++; calls == served {
						endSession(w)
					}
				})
				done <- result{n, err, context.Cause(r.Context())}
			})
			res, err := srv.Client().Get(srv.URL)
			must.Succeed(t, err)
			defer res.Body.Close()
			got, err := io.Copy(io.Discard, res.Body)
			if err == nil || got > served*maxUnchecked {
				t.Errorf("the client got %d bytes, %v", got, err)
			}
			r := <-done
			if r.n > served*maxUnchecked || !errors.Is(r.err, ErrSessionEnded) || !errors.Is(r.cause, ErrSessionEnded) {
				t.Errorf("the handler has copied %d bytes, %v; its context ended because of %v", r.n, r.err, r.cause)
			}
		})
	}
}

func TestGuard_PassesWholeDownload(t *testing.T) {
	t.Parallel()
	for name, download := range downloads {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, content := testFile(t, downloadSize)
			kernelCopies := make(chan int, 1)
			srv := startGuarded(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", strconv.Itoa(downloadSize))
				n, copies, err := download(w, f, func() {})
				if n != downloadSize || err != nil {
					t.Errorf("copied %d bytes, %v", n, err)
				}
				kernelCopies <- copies
			})
			res, err := srv.Client().Get(srv.URL)
			must.Succeed(t, err)
			defer res.Body.Close()
			if got, err := io.ReadAll(res.Body); err != nil || !bytes.Equal(got, content) {
				t.Errorf("the client got %d bytes, %v", len(got), err)
			}
			if n := <-kernelCopies; strings.HasSuffix(name, "file") && n <= downloadSize/maxUnchecked {
				t.Errorf("the kernel copied %d times", n)
			}
		})
	}
}

func TestGuard_ReadFromReadsOnlyPassedBytes(t *testing.T) {
	t.Parallel()
	f, _ := testFile(t, 3*maxUnchecked)
	for _, src := range []io.Reader{f, strings.NewReader(strings.Repeat("x", 3*maxUnchecked))} {
		inner := &readerFromRecorder{}
		w, _, _ := Abortable(inner, httptest.NewRequest("GET", "/", nil), nil, nil)
		part := &io.LimitedReader{R: src, N: maxUnchecked + 10}
		n, err := w.(io.ReaderFrom).ReadFrom(part)
		if n != maxUnchecked+10 || inner.took != n || part.N != 0 || err != nil {
			t.Errorf("%T: %d bytes, %d by the inner ReadFrom, %d left, %v", src, n, inner.took, part.N, err)
		}
		part.N = 1 << 30
		n, err = w.(io.ReaderFrom).ReadFrom(part)
		if n != 2*maxUnchecked-10 || part.N != 1<<30-n || err != nil {
			t.Errorf("%T: %d bytes of the rest, %d left, %v", src, n, part.N, err)
		}
	}
}

// endingWriter ends the session during its second write.
type endingWriter struct {
	discard
	writes *int
	end    *func()
}

func (e endingWriter) Write(p []byte) (int, error) {
	if *e.writes++; *e.writes == 2 {
		(*e.end)()
	}
	return len(p), nil
}

func TestGuard_EndsLargeWrite(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 1<<20)
	for name, write := range map[string]func(w io.Writer) (int, error){
		"bytes": func(w io.Writer) (int, error) { return w.Write([]byte(large)) },
		"text":  func(w io.Writer) (int, error) { return io.WriteString(w, large) },
	} {
		inner := endingWriter{writes: new(int), end: new(func())}
		w, _, _ := Abortable(inner, httptest.NewRequest("GET", "/", nil), nil, nil)
		*inner.end = func() { endSession(w) }
		if n, err := write(w); n != 2*maxUnchecked || !errors.Is(err, ErrSessionEnded) {
			t.Errorf("%s: %d bytes were written, %v", name, n, err)
		}
	}
}

// TestGuard_CheckAborts checks that a refusal is an abort, so that the client takes no part of an
// answer for all of it, and that this happens once.
func TestGuard_CheckAborts(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(w http.ResponseWriter){
		"write":  func(w http.ResponseWriter) { _, _ = w.Write([]byte("after")) },
		"text":   func(w http.ResponseWriter) { _, _ = io.WriteString(w, "after") },
		"header": func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) },
		"flush":  func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() },
	} {
		rec, closed := httptest.NewRecorder(), 0
		w, r, request := Abortable(rec, httptest.NewRequest("GET", "/", nil), abortFunc(func() { closed++ }), nil)
		endSession(w)
		use(w)
		request.Abort()
		if closed != 1 || !errors.Is(context.Cause(r.Context()), ErrSessionEnded) || rec.Body.Len() > 0 ||
			rec.Code != http.StatusOK || rec.Flushed {
			t.Errorf("%s: closed %d times, %v, %d %q", name, closed, context.Cause(r.Context()), rec.Code, rec.Body)
		}
	}
}

// TestGuard_CheckAbortsCopy ends the session while a copy waits for its source.
func TestGuard_CheckAbortsCopy(t *testing.T) {
	t.Parallel()
	inner, closed := &readerFromRecorder{}, 0
	w, _, _ := Abortable(inner, httptest.NewRequest("GET", "/", nil), abortFunc(func() { closed++ }), nil)
	n, err := io.Copy(w, source{strings.NewReader("after"), func() { endSession(w) }})
	if n != 0 || inner.took != 0 || !errors.Is(err, ErrSessionEnded) || closed != 1 {
		t.Errorf("%d bytes were copied, %v; closed %d times", n, err, closed)
	}
}

// TestGuard_DropsRestOfUpload ends the session while the handler waits for more of the body.
func TestGuard_DropsRestOfUpload(t *testing.T) {
	t.Parallel()
	end, done := make(chan func(), 1), make(chan error, 1)
	srv := startGuarded(t, func(w http.ResponseWriter, r *http.Request) {
		first := make([]byte, 5)
		if _, err := io.ReadFull(r.Body, first); err != nil || string(first) != "first" {
			t.Errorf("%q, %v", first, err)
		}
		end <- func() { endSession(w) }
		n, err := r.Body.Read(make([]byte, 10))
		if n > 0 {
			t.Errorf("%d bytes were read after the session's end", n)
		}
		if cause := context.Cause(r.Context()); !errors.Is(cause, ErrSessionEnded) {
			t.Errorf("its context ended because of %v", cause)
		}
		done <- err
	})
	body, send := io.Pipe()
	go func() {
		_, _ = send.Write([]byte("first"))
		(<-end)()
		_, _ = send.Write([]byte("second"))
		_ = send.Close()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "POST", srv.URL, body)
	must.Succeed(t, err)
	if res, err := srv.Client().Do(r); err == nil {
		_ = res.Body.Close()
	}
	select {
	case err := <-done:
		if !errors.Is(err, ErrSessionEnded) {
			t.Errorf("reading the rest: %v", err)
		}
	case <-time.After(testTimeout):
		t.Fatal("its handler goes on")
	}
}

// TestGuard_DropsReadsAfterEnd covers both checks of a read: a session that has ended before
// it, and one that ends while it waits.
func TestGuard_DropsReadsAfterEnd(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{true, false} {
		var end func()
		reads := 0
		body := io.NopCloser(source{strings.NewReader("secret"), func() { reads++; end() }})
		w, r, _ := Abortable(httptest.NewRecorder(), httptest.NewRequest("POST", "/", body), abortFunc(func() {
			t.Error("the connection was closed: it may carry another request by now")
		}), nil)
		end = func() { endSession(w) }
		if before {
			end()
		}
		p := make([]byte, 10)
		n, err := r.Body.Read(p)
		if n != 0 || !errors.Is(err, ErrSessionEnded) || before == (reads > 0) {
			t.Errorf("ended before: %t: %d bytes, %v, %d reads of the client", before, n, err, reads)
		}
		if cause := context.Cause(r.Context()); !errors.Is(cause, ErrSessionEnded) {
			t.Errorf("ended before: %t: its context ended because of %v", before, cause)
		}
	}
}

func TestAbortable_KeepsAbsentBody(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest("GET", "/", nil)
	for _, body := range []io.ReadCloser{nil, http.NoBody} {
		r.Body = body
		if _, wrapped, _ := Abortable(httptest.NewRecorder(), r, nil, nil); wrapped.Body != body {
			t.Errorf("%v became %v", body, wrapped.Body)
		}
	}
}
