// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// slowPath is answered after slowAnswer.
const (
	slowPath   = "/slow"
	slowAnswer = 2 * time.Second
)

// startSlowUpstream is startUpstream with slowPath.
func startSlowUpstream(t testing.TB) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != slowPath {
			serveUpstream(w, r)
			return
		}
		select {
		case <-time.After(slowAnswer):
			_, _ = io.WriteString(w, "slow")
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(srv.CloseClientConnections)
	t.Cleanup(srv.Close)
	return srv.URL
}

// getSlow requests slowPath of a target without TLS, once.
func getSlow(ctx context.Context, g *target) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.addr+slowPath, nil)
	if err != nil {
		return err
	}
	r.Host = g.host
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err == nil && string(body) != "slow" {
		err = fmt.Errorf("status %d: %.200s", res.StatusCode, body)
	}
	return err
}
