// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// connectionAuth is an upstream that authenticates connections, as NTLM does: "NTLM hello", then
// "NTLM <name>" over the same connection. It answers with the connection's person.
type connectionAuth struct {
	mu      sync.Mutex
	greeted map[string]bool   // by remote address
	people  map[string]string // by remote address
}

func (u *connectionAuth) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, presented, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	switch {
	case presented == "hello":
		u.greeted[r.RemoteAddr] = true
		w.Header().Set("WWW-Authenticate", "NTLM challenge")
		w.WriteHeader(http.StatusUnauthorized)
		return
	case presented != "" && u.greeted[r.RemoteAddr]:
		u.people[r.RemoteAddr] = presented
	}
	name := u.people[r.RemoteAddr]
	if name == "" {
		w.Header().Set("WWW-Authenticate", `Basic realm="a, b", Negotiate`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	_, _ = fmt.Fprintf(w, "you are %s", name)
}

// TestEdge_NobodyGetsAnothersAuthenticatedConnection: people who authenticate connections at the
// same time as others call anonymously stay themselves, and the others stay anonymous.
func TestEdge_NobodyGetsAnothersAuthenticatedConnection(t *testing.T) {
	t.Parallel()
	const people = 8
	serve := func() http.HandlerFunc {
		return (&connectionAuth{greeted: map[string]bool{}, people: map[string]string{}}).ServeHTTP
	}
	pods := servicetest.NewPath(t, serve())
	h2pods := servicetest.NewPath(t, serve(), func(b *tunnel.Bind) { b.UpstreamProtocol = "http2" })
	public := servicetest.StartPublic(t)
	public.Bind("public", "http://plain.example.com", serve())
	public.Bind("public", "https://app.example.com", serve())
	pod := func(p *servicetest.Path, protocols ...func(*http.Protocols)) func() *http.Client {
		return func() *http.Client {
			return &http.Client{Transport: p.Forwarder.Transport(p.Bound, protocols...), Timeout: servicetest.MaxWait}
		}
	}
	h2c := func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }
	for name, c := range map[string]struct {
		url    string
		client func() *http.Client
	}{
		"pod": {"http://hello.demo/", pod(pods)}, "pod with h2c": {"http://hello.demo/", pod(pods, h2c)},
		"pod of an h2c upstream": {"http://hello.demo/", pod(h2pods, h2c)},
		"public http":            {"http://plain.example.com/", public.NewBrowser},
		"public https":           {"https://app.example.com/", public.NewBrowser},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var clients sync.WaitGroup
			for i := range people {
				person, anonymous := c.client(), c.client()
				clients.Go(func() {
					name := fmt.Sprintf("person %d", i)
					for _, step := range []struct {
						authorization, want string
					}{{"", "401 "}, {"NTLM hello", "401 "}, {"NTLM " + name, "200 you are " + name},
						{"", "200 you are " + name}, {"", "200 you are " + name}} {
						checkAnswer(t, person, c.url, step.authorization, step.want)
						checkAnswer(t, anonymous, c.url, "", "401 ")
					}
					person.CloseIdleConnections()
					checkAnswer(t, anonymous, c.url, "", "401 ")
				})
			}
			clients.Wait()
		})
	}
}

func checkAnswer(t *testing.T, client *http.Client, url, authorization, want string) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Error(err)
		return
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Error(err)
		return
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if got := fmt.Sprintf("%d %s", res.StatusCode, body); err != nil || got != want {
		t.Errorf("%q presented: got %q, %v, want %q", authorization, got, err, want)
	}
}
