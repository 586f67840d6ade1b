// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

const benchSize = 64 << 20

// benchDownloads copy benchSize bytes of a file to the client in each way that handlers use.
var benchDownloads = map[string]func(w http.ResponseWriter, f *os.File) error{
	"writes": func(w http.ResponseWriter, f *os.File) error {
		_, err := io.Copy(struct{ io.Writer }{w}, struct{ io.Reader }{f})
		return err
	},
	"file": func(w http.ResponseWriter, f *os.File) error {
		_, err := io.CopyN(w, f, benchSize)
		return err
	},
	"reader": func(w http.ResponseWriter, f *os.File) error {
		_, err := io.Copy(w, struct{ io.Reader }{f})
		return err
	},
	"upgraded": func(w http.ResponseWriter, f *os.File) error {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return err
		}
		defer c.Close()
		_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n", benchSize)
		_, err = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{f})
		return err
	},
}

// BenchmarkDownload has a client download 64 MiB from a server, with and without the guard. The
// allocations are those of server and client together.
func BenchmarkDownload(b *testing.B) {
	opened, _ := testFile(b, benchSize)
	for kind, serve := range benchDownloads {
		for _, guarded := range []bool{false, true} {
			b.Run(map[bool]string{false: "plain ", true: "guarded "}[guarded]+kind, func(b *testing.B) {
				srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Length", strconv.Itoa(benchSize))
					if guarded {
						w, _, _ = Abortable(w, r, nil, nil)
					}
					f, err := os.Open(opened.Name()) // the handler before may still read its own
					if err != nil {
						b.Error(err)
						return
					}
					defer f.Close()
					if err := serve(w, f); err != nil {
						b.Error(err)
					}
				}))
				defer srv.Close()
				b.SetBytes(benchSize)
				b.ReportAllocs()
				for b.Loop() {
					res, err := srv.Client().Get(srv.URL)
					must.Succeed(b, err)
					if n, err := io.Copy(io.Discard, res.Body); n != benchSize || err != nil {
						b.Fatalf("%d bytes, %v", n, err)
					}
					_ = res.Body.Close()
				}
			})
		}
	}
}
