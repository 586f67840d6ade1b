// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TestWatch_TimesOutAfter45Seconds runs in a bubble, with the defaults, over a pipe.
func TestWatch_TimesOutAfter45Seconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Options{BaseURL: "https://x", APIKey: func() (string, error) { return "flk_x", nil }})
		must.Succeed(t, err)
		ours, theirs := net.Pipe()
		c.base.Scheme = "http" // TLS is another test's
		c.http.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
			return ours, nil
		}
		lines := make(chan string)
		go func() {
			_, _ = http.ReadRequest(bufio.NewReader(theirs))
			_, _ = fmt.Fprint(theirs, "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n")
			for line := range lines {
				_, _ = fmt.Fprintln(theirs, line)
			}
		}()
		w, err := c.WatchEndpoints(t.Context(), account.EndpointFilter{}, account.ResourceVersion{Epoch: 7})
		must.Succeed(t, err)
		began := time.Now()
		time.AfterFunc(44*time.Second, func() { lines <- `{"type":"BOOKMARK","resource_version":"7-1"}` })
		e, err := w.Next()
		if err != nil || e.Type != account.Bookmark || time.Since(began) != 44*time.Second {
			t.Fatalf("%+v, %v after %s", e, err, time.Since(began))
		}
		time.Sleep(time.Hour) // of the bubble: a consumer that is busy is no silence
		began = time.Now()
		_, err = w.Next()
		if took := time.Since(began); account.CodeOf(err) != account.CodeUnreachable || took != 45*time.Second ||
			!strings.Contains(err.Error(), "sent nothing for 45s") {
			t.Fatalf("%v after %s", err, took)
		}
		close(lines)
	})
}
