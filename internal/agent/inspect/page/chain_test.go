// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/chromium"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// chain is a service with an agent whose inspector is open in a browser, and a pod that calls the
// agent's endpoint.
type chain struct {
	*chromium.Tab

	recorder  *inspect.Recorder
	forwarder *servicetest.Forwarder
	bound     tunnel.Bound
	client    *http.Transport
}

// startChain starts an agent of a service of its own.
func startChain(ctx context.Context, t *testing.T, upstream http.HandlerFunc) *chain {
	t.Helper()
	s := servicetest.Start(t)
	url, err := account.ParseEndpointURL("http://shop.demo")
	must.Succeed(t, err)
	to, err := agent.ParseUpstream("http", servicetest.ServeHTTP(t, upstream))
	must.Succeed(t, err)
	c := &chain{recorder: inspect.New()}
	t.Cleanup(c.recorder.Close)
	online := make(chan agent.Online, 1)
	o := agent.Options{
		ServerOptions: agent.ServerOptions{Server: "https://" + s.Addrs.Service.String(),
			Address: s.Addrs.Service.String(), TLS: s.ClientTLS(), Token: func() string { return s.Authtoken }},
		UpstreamOptions: agent.UpstreamOptions{Inspect: c.recorder},
		Endpoints:       []agent.Endpoint{{Key: "shop", URL: url, Binding: account.BindingKubernetes, Upstream: to}},
		Observer: observerFunc(func(e agent.Event) {
			if e, ok := e.(agent.Online); ok {
				online <- e
			}
		})}
	run, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(run, o) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the agent ended: %v", err)
		}
	})
	is := servicetest.Receive(t, online, "endpoint that is online")
	c.bound = tunnel.Bound{EndpointID: is.EndpointID, URL: is.URL}
	c.forwarder = s.StartForwarder()
	c.client = c.forwarder.Transport(c.bound)
	srv := httptest.NewServer(inspect.NewHandler(c.recorder, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)},
		inspect.ServerOptions{Pages: New(Options{Recorder: c.recorder})}))
	t.Cleanup(srv.Close)
	c.Tab = &chromium.Tab{T: t, Ctx: ctx, Base: srv.URL}
	t.Cleanup(func() { _ = chromedp.Do(ctx, chromedp.Navigate("about:blank")) }) // ends the streams
	return c
}

// call sends a request as the pod and returns the answer's status and body.
func (c *chain) call(method, path, body string, header http.Header) (status int, answer string) {
	c.T.Helper()
	res := c.forwarder.Do(c.client, method, "http://shop.demo"+path, strings.NewReader(body), header)
	return res.StatusCode, servicetest.ReadAll(c.T, res.Body)
}

// shop is the upstream of a chain. It echoes what it is sent, over HTTP and over WebSockets.
func shop(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Set-Cookie", "sid="+secretCookie)
	switch r.URL.Path {
	case "/none":
		http.Error(w, "there is no such page", http.StatusNotFound)
	case "/chat":
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c,
			"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.WriteString(c, "\x81\x07welcome")
		_, _ = io.CopyN(c, rw, 7) // the beginning of what came: a masked frame of one byte, which is enough
	default:
		_, _ = fmt.Fprintf(w, `{"method":%q,"path":%q,"colour":%q,"body":%q,"saw":%q}`, r.Method, r.URL.Path,
			r.Header.Get("X-Colour"), body, r.Header.Get("Authorization"))
	}
}

// TestInspector_ShowsAgentsTraffic follows requests of a pod through a whole service and a whole
// agent into the pages, which a real browser shows.
func TestInspector_ShowsAgentsTraffic(t *testing.T) {
	ctx := chromium.Start(t, false)
	(&chromium.Tab{T: t, Ctx: ctx}).Resize(1280, 720, "light")
	c := startChain(ctx, t, shop)
	c.Open("/")
	c.WaitUntil("the stream, and no request", `'following' in document.body.dataset &&
		!document.getElementById("empty").hidden`)
	c.call("GET", "/items/1?color=red", "", http.Header{"Authorization": {"Bearer " + secretBearer}})
	c.WaitUntil("the request, live",
		`document.querySelector("#requests tbody tr")?.innerText.includes("/items/1?color=red")`)
	c.call("GET", "/none", "", nil)
	c.call("POST", "/orders", `{"item":7}`, http.Header{"Content-Type": {"application/json"}, "X-Colour": {"blue"}})
	c.WaitUntil("three", `document.querySelectorAll("#requests tbody tr").length === 3 &&
		document.querySelectorAll(".status.good").length === 2`)
	row := chromium.Eval[string](c.Tab, `document.querySelector("#requests tbody tr").innerText`)
	if !strings.Contains(row, "/orders") || !strings.Contains(row, "200") || !strings.Contains(row, "10.1.2.3") ||
		!strings.Contains(row, "http://shop.demo") {
		t.Errorf("the newest row: %q", row)
	}
	t.Run("filter", c.testFilter)
	t.Run("detail and replay", c.testReplayWithChanges)
	t.Run("exports", c.testExports)
	t.Run("websocket", c.testWebSocket)
}

func (c *chain) testFilter(*testing.T) {
	c.Open("/?status=404")
	c.WaitUntil("the one that failed", `document.querySelectorAll("#requests tbody tr").length === 1 &&
		document.querySelector("#requests tbody tr").innerText.includes("/none")`)
	c.Open("/")
	chromium.Eval[bool](c.Tab, "(document.getElementById('text').focus(), true)")
	c.Press(`"item":7`)
	c.WaitUntil("the one with this body", `document.querySelectorAll("#requests tbody tr").length === 1 &&
		document.querySelector("#requests tbody tr").innerText.includes("/orders")`)
}

func (c *chain) testReplayWithChanges(t *testing.T) {
	c.Do(chromedp.Click(chromedp.CSS("#requests tbody a")))
	c.WaitUntil("the request", `document.querySelector("h1")?.innerText === "POST /orders" &&
		document.querySelector("#request").closest("section").innerText.includes('"item": 7') &&
		document.querySelector("#response").closest("section").innerText.includes('"colour": "blue"')`)
	first := chromium.Eval[string](c.Tab, "location.pathname")
	c.Press("e")
	c.WaitUntil("the form", `document.getElementById("header")?.value.includes("X-Colour: blue")`)
	chromium.Eval[bool](c.Tab, `(() => {
		const set = (id, change) => document.getElementById(id).value = change(document.getElementById(id).value);
		set("method", () => "PUT");
		set("target", () => "/orders/7?again=1");
		set("header", (was) => was.replace("blue", "green"));
		set("body", () => '{"item":8}');
		return true;
	})()`)
	c.Do(chromedp.Click(chromedp.CSS("form.form button.primary")))
	c.WaitUntil("its replay", `document.querySelector("h1")?.innerText === "PUT /orders/7?again=1" &&
		document.querySelector("#response").closest("section").innerText.includes('"colour": "green"') &&
		document.querySelector("#response").closest("section").innerText.includes('"body": "{\\"item\\":8}"')`)
	if was := chromium.Eval[string](c.Tab, `document.querySelector("dd a").getAttribute("href")`); was != first {
		t.Errorf("it is a replay of %q, want %q", was, first)
	}
	c.Open("/")
	c.WaitUntil("the replay in the list", `document.querySelectorAll("#requests tbody tr").length === 4 &&
		document.querySelector("#requests tbody tr .tag:not([hidden])")`)
}

func (c *chain) testExports(t *testing.T) {
	c.Open("/?path=items")
	id := chromium.Eval[string](c.Tab, `document.querySelector("#requests tbody tr").dataset.key`)
	fetch := func(path string) string {
		return chromium.Eval[string](c.Tab, fmt.Sprintf(`(() => {
			const request = new XMLHttpRequest();
			request.open("GET", %q, false);
			request.send();
			return request.responseText;
		})()`, path))
	}
	all := harOf(t, fetch("/har"))
	if n := len(all.Log.Entries); n != 4 {
		t.Errorf("the archive of the list has %d entries", n)
	}
	one := fetch("/requests/" + id + "/har")
	if e := harOf(t, one).Log.Entries; len(e) != 1 || !strings.HasSuffix(e[0].Request.URL, "/items/1?color=red") {
		t.Errorf("the archive of one: %+v", e)
	}
	curl := fetch("/requests/" + id + "/curl")
	if !strings.Contains(curl, "http://shop.demo/items/1?color=red") {
		t.Errorf("the command: %s", curl)
	}
	for what, text := range map[string]string{"archive": one, "command": curl,
		"page": fetch("/requests/" + id), "list": fetch("/")} {
		if strings.Contains(text, "planted") {
			t.Errorf("the %s has a secret", what)
		}
	}
}

func (c *chain) testWebSocket(t *testing.T) {
	st := c.forwarder.Open(servicetest.OpenHeader(t, c.bound))
	_, _ = io.WriteString(st, "GET /chat HTTP/1.1\r\nHost: shop.demo\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Key: a\r\nSec-WebSocket-Version: 13\r\n\r\n")
	in := bufio.NewReader(st)
	res, err := http.ReadResponse(in, nil) //nolint:bodyclose // 101 has none
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%+v %v", res, err)
	}
	c.Open("/?path=chat")
	c.WaitUntil("the open WebSocket", `document.querySelector("#requests tbody a")?.innerText.includes("/chat")`)
	c.Do(chromedp.Click(chromedp.CSS("#requests tbody a")))
	c.WaitUntil("the first frame",
		`document.getElementById("frames")?.closest("section").innerText.includes("welcome") &&
		document.body.innerText.includes("Still going on")`)
	_, _ = io.WriteString(st, "\x81\x81\x01\x02\x03\x04"+string([]byte{'z' ^ 1}))
	c.WaitUntil("the caller's frame, live", `[...document.querySelectorAll(".frames tbody tr")].some((tr) =>
		tr.innerText.includes("caller") && tr.querySelector(".data").innerText.trim() === "z")`)
	_ = st.Close()
	c.WaitUntil("its end", `!document.body.innerText.includes("Still going on")`)
}

// observerFunc is an agent.Observer that calls a function.
type observerFunc func(agent.Event)

func (f observerFunc) Observe(e agent.Event) { f(e) }
