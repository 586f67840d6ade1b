// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// planted is a part of each secret of plantedRequests and of their answers.
const planted = "pl4nted"

// plantedSecrets are the secrets, each of which the upstream also repeats.
var plantedSecrets = []string{"pl4nted-bearer", "pl4nted-basic", "pl4nted-cookie", "pl4nted-api-key", "pl4nted-marked",
	"pl4nted-query", "pl4nted-referer", "pl4nted-form", "pl4nted-json", "pl4nted-answer", "pl4nted-set-cookie",
	"pl4nted-location"}

var basicPlanted = base64.StdEncoding.EncodeToString([]byte("ann:pl4nted-basic"))

const (
	plantedPolicy = "on_http_request: [{actions: [{type: add-headers, config: {headers: {X-Token-V2: " +
		"pl4nted-marked}}}]}]"

	plantedHeader = "Host: a.b\r\nAuthorization: Bearer pl4nted-bearer\r\nCookie: theme=dark; sid=pl4nted-cookie\r\n" +
		"X-Api-Key: pl4nted-api-key\r\nX-Token-V2: pl4nted-marked\r\n" +
		"Referer: http://a.b/x?access_token=pl4nted-referer\r\nConnection: close\r\n"
)

// plantedRequests returns requests with secrets, for upstreams that answer, break off and do not
// speak HTTP.
func plantedRequests() []string {
	request := func(method, path, header, body string) string {
		return fmt.Sprintf("%s %s?page=2&token=pl4nted-query HTTP/1.1\r\n%s%sContent-Length: %d\r\n\r\n%s", method,
			path,
			plantedHeader, header, len(body), body)
	}
	form := "Content-Type: application/x-www-form-urlencoded\r\n"
	return []string{
		request("GET", "/echo", "", ""),
		request("POST", "/echo", form, "user=ann&password=pl4nted-form"),
		request("POST", "/echo", "Content-Type: application/json\r\n", `{"user":"ann","password":"pl4nted-json"}`),
		request("GET", "/break", "Proxy-Authorization: Basic "+basicPlanted+"\r\n", ""),
		request("POST", "/garbage", form, "user=ann&password=pl4nted-form"),
		request("POST", "/turns", form, "user=ann&password=pl4nted-form"),
	}
}

// repeatSecrets returns an upstream that answers with the secrets of the request and more of them,
// and from its second answer at /turns on with what is no HTTP.
func repeatSecrets() http.Handler {
	var turns atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		repeat(w, r, r.URL.Path == "/garbage" || r.URL.Path == "/turns" && turns.Add(1) > 1)
	})
}

func repeat(w http.ResponseWriter, r *http.Request, garbage bool) {
	body, _ := io.ReadAll(r.Body)
	header := &bytes.Buffer{}
	_ = r.Header.Write(header)
	_, credential, _ := strings.Cut(r.Header.Get("Proxy-Authorization"), " ")
	decoded, _ := base64.StdEncoding.DecodeString(credential)
	if garbage || r.URL.Path == "/break" {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer func() { _ = c.Close() }()
		first := "HTTP/1.1 200 " + r.Header.Get("Authorization") + "\r\nContent-Length: 100000\r\n\r\n"
		if garbage {
			first = r.Header.Get("Authorization") + " is no HTTP\r\n"
		}
		_, _ = fmt.Fprintf(c, "%s%s\r\n%s%s\r\n", first, header, body, decoded)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Set-Cookie", "sid=pl4nted-set-cookie; HttpOnly")
	w.Header().Set("Location", "/callback?state=1&code=pl4nted-location")
	w.Header().Set("X-Echo", "saw "+r.Header.Get("Authorization"))
	if strings.Contains(r.Header.Get("Content-Type"), "json") {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{"access_token": "pl4nted-answer", "saw": string(body),
			"from": header.String()})
		return
	}
	_, _ = fmt.Fprintf(w, "you sent %s to %s, in %s", body, r.URL, header)
}

// plant sends the requests over streams of the session, and reports them as the edge does.
func plant(t *testing.T, s *tunnel.Session) {
	t.Helper()
	for _, request := range plantedRequests() {
		st, err := s.Open(t.Context(), tunnel.OpenHeader{EndpointID: "ep-1", Host: "a.b", Port: 80, Scheme: "http",
			ClientAddr: "10.0.0.5:4000"})
		must.Succeed(t, err)
		_ = st.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.WriteString(st, request); err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadAll(st)
		_ = st.Close()
		path, _, _ := strings.Cut(strings.Fields(request)[1], "?")
		s.SendRequestLine(tunnel.RequestLine{EndpointID: "ep-1", Method: "GET", Path: path, Status: 200})
	}
}

// inspectorClient reads what an inspector shows.
type inspectorClient struct {
	t    *testing.T
	base string
}

func (c *inspectorClient) call(method, path, contentType, body string) string {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.base+path, strings.NewReader(body))
	must.Succeed(c.t, err)
	req.Header.Set("Content-Type", contentType)
	res, err := http.DefaultClient.Do(req)
	must.Succeed(c.t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	must.Succeed(c.t, err)
	return fmt.Sprint(res.StatusCode, res.Header, withDecoded(string(text)))
}

var base64Word = regexp.MustCompile(`[A-Za-z0-9+/]{8,}={0,2}`)

// withDecoded returns the text with what its words in base64 stand for.
func withDecoded(text string) string {
	text = strings.NewReplacer(`\u002b`, "+", `\/`, "/").Replace(text)
	for _, word := range base64Word.FindAllString(text, -1) {
		if decoded, err := base64.StdEncoding.DecodeString(word); err == nil {
			text += "\n" + string(decoded)
		}
	}
	return text
}

// show reads what is shown without asking for secrets.
func (c *inspectorClient) show(path string) {
	c.t.Helper()
	text := c.call(http.MethodGet, path, "", "")
	if !strings.HasPrefix(text, "200") && !strings.HasPrefix(text, "409") { // there is no curl command of garbage
		c.t.Errorf("%s: %s", path, text)
	}
	c.check(path, text)
}

func (c *inspectorClient) check(what, text string) {
	c.t.Helper()
	if i := strings.Index(text, planted); i >= 0 {
		c.t.Errorf("%s shows %s", what, text[max(i-80, 0):min(i+40, len(text))])
	}
	if strings.Contains(text, basicPlanted) {
		c.t.Errorf("%s shows the password of Basic", what)
	}
}

type listedRequests struct {
	Requests []struct {
		ID   string
		Done bool
	}
}

// ids returns the exchanges that are shown once there are n and all are done.
func (c *inspectorClient) ids(n int) (ids []string) {
	c.t.Helper()
	wait.Until(c.t, fmt.Sprintf("%d exchanges", n), func() bool {
		res, err := http.Get(c.base + "/api/requests/http")
		must.Succeed(c.t, err)
		defer func() { _ = res.Body.Close() }()
		var all listedRequests
		must.Succeed(c.t, json.NewDecoder(res.Body).Decode(&all))
		ids = nil
		for _, r := range all.Requests {
			if r.Done {
				ids = append(ids, r.ID)
			}
		}
		return len(ids) == n && len(all.Requests) == n
	})
	return ids
}

// checkInspector looks for secrets in all that the inspector shows, of exchanges, of failed ones
// and of their replays, and checks that they are there when they are asked for.
func checkInspector(t *testing.T, base string) {
	t.Helper()
	c := &inspectorClient{t: t, base: base}
	count := len(plantedRequests())
	for _, id := range c.ids(count) {
		c.check("a replay", c.call("POST", "/api/requests/http", "application/json", fmt.Sprintf(`{"id":%q}`, id)))
	}
	ids := c.ids(2*count - 1) // what does not speak HTTP is not replayed
	for _, path := range []string{"/", "/har", "/api/requests/http", "/api/requests/http?text=" + planted,
		"/api/tunnels"} {
		c.show(path)
	}
	asked := ""
	for _, id := range ids {
		for _, path := range []string{"/requests/" + id, "/requests/" + id + "/har", "/requests/" + id + "/curl",
			"/requests/" + id + "/edit", "/api/requests/http/" + id} {
			c.show(path)
		}
		asked += c.call("GET", "/api/requests/http/"+id+"?unmasked=true", "", "")
	}
	page := c.call("GET", "/", "", "")
	token := regexp.MustCompile(`name="csrf" value="([^"]+)"`).FindStringSubmatch(page)
	if token == nil {
		t.Fatalf("no form in %s", page)
	}
	har := c.call("POST", "/har", "application/x-www-form-urlencoded", url.Values{"csrf": token[1:]}.Encode())
	for _, secret := range plantedSecrets {
		if !strings.Contains(asked, secret) {
			t.Errorf("/api?unmasked=true lacks %s", secret)
		}
		if !strings.Contains(har, secret) {
			t.Errorf("the HAR with secrets lacks %s", secret)
		}
	}
}

// writePlantedPolicy returns the path of a policy that sets a header with a secret.
func writePlantedPolicy(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	must.Succeed(t, os.WriteFile(path, []byte(plantedPolicy), 0o600))
	return path
}

// TestInspect_ShowsNoSecretByDefault plants secrets in requests and answers and looks for them in
// pages, exports, the API and the agent's logs.
func TestInspect_ShowsNoSecretByDefault(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			upstream := httptest.NewServer(repeatSecrets())
			defer upstream.Close()
			svc := newService(t, nil, nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var out syncBuffer
			env := map[string]string{"HOME": t.TempDir(), agentconfig.EnvAuthtoken: goodToken}
			code := make(chan int, 1)
			go func() {
				code <- run(ctx, []string{"http", upstream.URL, "--url", "http://a.b", "--server", svc.url, "--ca-file",
					svc.caFile, "--inspect-addr", "127.0.0.1:0", "--log-format", format, "--log-level", "debug",
					"--traffic-policy-file", writePlantedPolicy(t)},
					console{in: strings.NewReader(""), out: &out, err: &out, env: func(k string) string {
						return env[k]
					}})
			}()
			plant(t, <-svc.bound)
			checkInspector(t, inspectorOf(t, out.String))
			wait.Until(t, "the request lines", func() bool { return strings.Contains(out.String(), "/turns") })
			cancel()
			<-code
			(&inspectorClient{t: t}).check("the log", withDecoded(out.String()))
		})
	}
}

var inspectorURL = regexp.MustCompile(`(?i)inspect[^\n]*?(http://127\.0\.0\.1:\d+)`)

// inspectorOf returns the inspector's URL in what an agent prints.
func inspectorOf(t *testing.T, printed func() string) string {
	t.Helper()
	var found []string
	wait.Until(t, "the inspector's address", func() bool {
		found = inspectorURL.FindStringSubmatch(printed())
		return found != nil
	})
	return found[1]
}

// syncBuffer is a buffer for concurrent use.
type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
