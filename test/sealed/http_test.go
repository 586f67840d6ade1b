// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/agent/sealededge"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

var apiURL = account.EndpointURL{Scheme: "http", Host: "api.demo", Port: 80}

// site is http://api.demo, sealed.
type site struct {
	*rig
	id     string
	client *http.Client
}

// newSite serves the handler; change, if not nil, changes the endpoint.
func newSite(t *testing.T, handler http.Handler, change func(*agent.Endpoint)) *site {
	t.Helper()
	r := newRig(t)
	upstream := httptest.NewServer(handler)
	t.Cleanup(upstream.Close)
	e := r.endpoint("1", r.owner.Identity(apiURL))
	var err error
	e.URL = apiURL
	e.Upstream, err = agent.ParseUpstream("http", upstream.Listener.Addr().String())
	must.Succeed(t, err)
	if change != nil {
		change(&e)
	}
	server := sealededge.New(&e, slog.New(slog.DiscardHandler))
	e.SealedServer = server
	s := &site{rig: r}
	s.id = r.serve("in-a", e)
	t.Cleanup(server.Close)
	trust := r.owner.Trust()
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return r.callAt(apiURL, s.id, trust), nil
	}}
	t.Cleanup(transport.CloseIdleConnections)
	s.client = &http.Client{Transport: transport}
	return s
}

func TestSealedHTTP_KeptConnection(t *testing.T) {
	t.Parallel()
	s := newSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, strings.Join([]string{r.Host, r.Header.Get("X-Forwarded-For"), r.URL.Path}, " "))
		_ = n
	}), nil)
	for range 3 {
		res, err := s.client.Get("http://api.demo/path")
		must.Succeed(t, err)
		body, err := io.ReadAll(res.Body)
		must.Succeed(t, errors.Join(err, res.Body.Close()))
		if string(body) != "api.demo 10.1.2.3 /path" {
			t.Errorf("%s %q", res.Status, body)
		}
	}
}
