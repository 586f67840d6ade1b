// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package webpage

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestCompressed_CompressesOwnPages(t *testing.T) {
	t.Parallel()
	page := strings.Repeat("<p>ep-0123456789</p>\n", 1000)
	h := Compressed(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, page)
	}))
	for name, test := range map[string]struct {
		method, name, value string
		want                bool
	}{
		"own page":   {http.MethodGet, "Sec-Fetch-Site", "same-origin", true},
		"typed":      {http.MethodGet, "Sec-Fetch-Site", "none", true},
		"no browser": {http.MethodGet, "X-Other", "", true},
		"sibling":    {http.MethodGet, "Sec-Fetch-Site", "same-site", false},
		"other site": {http.MethodGet, "Sec-Fetch-Site", "cross-site", false},
		"form":       {http.MethodPost, "Sec-Fetch-Site", "same-origin", false},
		"events":     {http.MethodGet, "Accept", "text/event-stream", false},
		"refused":    {http.MethodGet, "Accept-Encoding", "gzip;q=0", false},
	} {
		r := httptest.NewRequest(test.method, "/", http.NoBody)
		r.Header.Set("Accept-Encoding", "gzip, br")
		r.Header.Set(test.name, test.value)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusNotFound {
			t.Errorf("%s: status %d", name, w.Code)
		}
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != test.want {
			t.Errorf("%s: compressed %t, %d bytes", name, got, w.Body.Len())
		} else if !got {
			continue
		}
		if w.Body.Len() > len(page)/20 {
			t.Errorf("%s: %d of %d bytes", name, w.Body.Len(), len(page))
		}
		plain, err := gzip.NewReader(w.Body)
		must.Succeed(t, err)
		if body, err := io.ReadAll(plain); err != nil || string(body) != page {
			t.Errorf("%s: %d bytes, %v", name, len(body), err)
		}
	}
}
