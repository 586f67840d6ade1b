// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/pipelistener"
)

// pipeDialer is a StaticDialer to a server in memory.
type pipeDialer struct{ to *pipelistener.Listener }

func (d pipeDialer) Dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	if !d.to.Offer(far) {
		return nil, net.ErrClosed
	}
	return near, nil
}

// TestServeHTTP_WaitsForLongPolls: an upstream may be silent for longer than anything else may take,
// before its answer and within it.
func TestServeHTTP_WaitsForLongPolls(t *testing.T) {
	t.Parallel()
	const quiet = 30 * time.Minute
	synctest.Test(t, func(t *testing.T) {
		ln := pipelistener.New()
		upstream := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			time.Sleep(quiet)
			_, _ = w.Write(body)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(quiet)
			_, _ = io.WriteString(w, " answer")
		})}
		served := make(chan error, 1)
		go func() { served <- upstream.Serve(ln) }()
		e := newEdge(t, func(o *Options) {
			o.StaticDialer, o.Backends = pipeDialer{ln}, oneLeaf{static("poll:80")}
		})
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			begun := time.Now()
			res := ask(e, cloudEndpoint("", "bk"), method, "late")
			took := time.Since(begun)
			if res.Code != http.StatusOK || res.Body.String() != "late answer" || took != 2*quiet {
				t.Errorf("%s: %d %q after %s", method, res.Code, res.Body, took)
			}
		}
		e.Close()
		_ = upstream.Close()
		<-served
	})
}
