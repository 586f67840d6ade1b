// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// oneLeaf is a Backends whose backends have one leaf, always the same.
type oneLeaf struct{ leaf Attempt }

func (l oneLeaf) Attempts(context.Context, string, string, *ClientInfo) (Attempts, error) {
	return new(leaves).add(l.leaf), nil
}

// BenchmarkServeHTTP measures a request with a body to a leaf, without the connection with the
// client.
func BenchmarkServeHTTP(b *testing.B) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	b.Cleanup(up.Close)
	for name, leaf := range map[string]Attempt{
		"fixed": answer(200, "hello"), "address": static(up.Listener.Addr().String()),
	} {
		b.Run(name, func(b *testing.B) {
			e := New(Options{Meter: noMeter{}, Agents: noAgents{}, Backends: oneLeaf{leaf}, StaticDialer: anyDialer{},
				Logger: slog.New(slog.DiscardHandler)})
			b.Cleanup(e.Close)
			ep := cloudEndpoint(`{"on_http_request": [{"actions": [`+
				`{"type": "add-headers", "config": {"headers": {"a": "b"}}}]}]}`, "bk")
			info := ClientInfo{Upstreams: new(PrivateUpstreams)}
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest("POST", "http://hello.demo/x", strings.NewReader("hello"))
				w := httptest.NewRecorder()
				if e.ServeHTTP(w, r, ep, info); w.Code != http.StatusOK || w.Body.String() != "hello" {
					b.Fatalf("%d %s", w.Code, w.Body)
				}
			}
		})
	}
}
