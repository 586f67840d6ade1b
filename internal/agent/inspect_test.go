// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/closedport"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// inspecting gives an agent a Recorder.
func inspecting(t *testing.T) (*inspect.Recorder, func(*agent.Options)) {
	t.Helper()
	r := inspect.New()
	t.Cleanup(r.Close)
	return r, func(o *agent.Options) { o.Inspect, o.InspectURL = r, "http://127.0.0.1:4040" }
}

func TestInspect_RecordsRequests(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
		_, _ = fmt.Fprintf(w, " from %s", r.URL)
	}))
	defer upstream.Close()
	recorder, option := inspecting(t)
	svc := newService(t).start()
	r := run(t, svc, upstream.URL, option)
	if got := next[agent.Inspecting](r); got.URL != "http://127.0.0.1:4040" {
		t.Errorf("got %+v", got)
	}
	s := receive(t, svc.bound, "bind")
	st := open(t, s, header())
	answers := bufio.NewReader(st)
	for i := range 3 { // over one stream, as the edge does
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, fmt.Sprintf("http://hello.demo/%d", i),
			strings.NewReader(fmt.Sprint("body ", i)))
		must.Succeed(t, err)
		must.Succeed(t, req.Write(st))
		res, err := http.ReadResponse(answers, req)
		must.Succeed(t, err)
		_, _ = io.ReadAll(res.Body)
		_ = res.Body.Close()
	}
	wait.Until(t, "three exchanges", func() bool { return len(recorder.List(inspect.Filter{Status: "200"})) == 3 })
	for i, listed := range recorder.List(inspect.Filter{}) {
		e, _ := recorder.Get(listed.ID)
		path := fmt.Sprint("/", 2-i)
		if e.Request.URL != path || string(e.Response.Body) != fmt.Sprintf("body %d from %s", 2-i, path) || !e.Done ||
			e.EndpointID != endpointID || e.EndpointURL != "http://hello.demo" || e.FirstByte <= 0 ||
			e.Duration < e.FirstByte ||
			e.Caller != (inspect.Caller{IP: "10.0.0.5", Pod: "client", Namespace: "demo"}) {
			t.Errorf("got %+v", e)
		}
	}
	_ = st.Close()
	if got := recorder.Endpoints(); len(got) != 1 || got[0].ID != endpointID || !got[0].Online || got[0].Name != "n" ||
		got[0].Upstream != upstream.URL {
		t.Errorf("endpoints: %+v", got)
	}
	id, err := recorder.Replay(t.Context(), recorder.List(inspect.Filter{Path: "/0"})[0].ID, inspect.Change{})
	must.Succeed(t, err)
	if e, _ := recorder.Get(id); string(e.Response.Body) != "body 0 from /0" {
		t.Errorf("replayed: %+v", e.Response)
	}
	svc.kill()
	wait.Until(t, "offline endpoint", func() bool { return !recorder.Endpoints()[0].Online })
}

func TestInspect_ShowsUnreachedUpstream(t *testing.T) {
	t.Parallel()
	recorder, option := inspecting(t)
	svc := newService(t).start()
	run(t, svc, closedport.Reserve(t), func(o *agent.Options) {
		option(o)
		o.Endpoints[0].TrafficPolicy = "on_http_request: [{actions: [{type: add-headers, config: {headers: " +
			"{x-token-v2: t}}}]}]"
	})
	s := receive(t, svc.bound, "bind")
	h := header()
	h.BytesFollow = true // the request is sent together with the header
	st, err := s.Open(t.Context(), h)
	must.Succeed(t, err)
	defer func() { _ = st.Close() }()
	_, _ = io.WriteString(st, "GET /a?b=c HTTP/1.1\r\nHost: hello.demo\r\nFairlead-Auth-Email: ann%40a.b\r\n\r\n")
	var refused *tunnel.RefusedError
	if err := st.WaitOpened(t.Context()); !errors.As(err, &refused) || refused.Code != tunnel.RefusedUpstream {
		t.Fatalf("got %v", err)
	}
	wait.Until(t, "an exchange", func() bool { return len(recorder.List(inspect.Filter{Status: "failed"})) == 1 })
	e := recorder.List(inspect.Filter{})[0]
	if e.Request.URL != "/a?b=c" || e.Error != "the upstream was not reached: connection refused" ||
		e.Response != nil ||
		e.Caller.Person != "ann@a.b" || e.Caller.Pod != "client" {
		t.Errorf("got %+v", e)
	}
	wait.Until(t, "the endpoint, which may be known later than its first request", func() bool {
		return len(recorder.Endpoints()) == 1
	})
	if got := recorder.Endpoints()[0].Marked; len(got) != 1 || got[0] != "X-Token-V2" {
		t.Errorf("marked %q", got)
	}
}

func TestInspect_LeavesTCPAlone(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.NotFoundHandler())
	defer upstream.Close()
	recorder, option := inspecting(t)
	svc := newService(t).start()
	r := run(t, svc, upstream.Listener.Addr().String(), func(o *agent.Options) { option(o); asTCP(o) })
	s := receive(t, svc.bound, "bind")
	if _, err := get(t, s, "/"); err != nil {
		t.Fatal(err)
	}
	next[agent.Connection](r)
	if n := len(recorder.List(inspect.Filter{})); n > 0 || len(recorder.Endpoints()) > 0 {
		t.Errorf("%d exchanges, endpoints %+v", n, recorder.Endpoints())
	}
}
