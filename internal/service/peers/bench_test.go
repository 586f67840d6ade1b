// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// serveHTTP answers the requests on a stream with 1 KiB each.
func serveHTTP(st *tunnel.Stream) {
	if st.Accept() != nil {
		return
	}
	in := bufio.NewReader(st)
	body := strings.Repeat("x", 1024)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		res := &http.Response{StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(len(body)),
			Body: io.NopCloser(strings.NewReader(body)), Header: http.Header{"Content-Type": {"text/plain"}}}
		out := bufio.NewWriterSize(st, 4096)
		if res.Write(out) != nil || out.Flush() != nil {
			return
		}
	}
}

// cpuTime returns the CPU time of the process so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRequest compares requests to an agent of this replica with requests that a peer relays,
// over streams that are used again and over new ones. An HTTP server answers clients, as the edge
// does, so that what is compared is whole requests. cpu-µs/op is of the whole process: client,
// edge, replicas and agent.
func BenchmarkRequest(b *testing.B) {
	c := newCluster(b)
	agent := agentSession(b, serveHTTP)
	asks, holds := c.start("rp-1"), c.start("rp-2")
	holds.local.add(testHolder("ep-1"), agent)
	c.linked(asks, holds)
	direct := func(ctx context.Context) (net.Conn, error) {
		return agent.Open(ctx, tunnel.OpenHeader{EndpointID: "ep-1", BytesFollow: true})
	}
	relayed := func(ctx context.Context) (net.Conn, error) {
		m, err := asks.Choose(ctx, testQuery(), nil)
		if err != nil {
			return nil, err
		}
		defer m.Release()
		return m.Open(ctx, tunnel.OpenHeader{EndpointID: "ep-1", BytesFollow: true})
	}
	for _, path := range []struct {
		name string
		dial func(context.Context) (net.Conn, error)
	}{{"direct", direct}, {"relayed", relayed}} {
		for _, fresh := range []bool{false, true} {
			b.Run(path.name+map[bool]string{false: "/kept", true: "/new"}[fresh], func(b *testing.B) {
				benchmarkRequests(b, path.dial, fresh)
			})
		}
	}
}

func benchmarkRequests(b *testing.B, dial func(context.Context) (net.Conn, error), fresh bool) {
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true, DisableKeepAlives: fresh,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}
	defer transport.CloseIdleConnections()
	l := listen(b)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			out, _ := http.NewRequestWithContext(r.Context(), r.Method, "http://api.demo/", r.Body)
			res, err := transport.RoundTrip(out)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			defer func() { _ = res.Body.Close() }()
			w.Header().Set("Content-Length", res.Header.Get("Content-Length"))
			_, _ = io.Copy(w, res.Body)
		})}
	go func() { _ = server.Serve(l) }()
	defer func() { _ = server.Close() }()
	clients := &http.Transport{MaxIdleConnsPerHost: 64}
	defer clients.CloseIdleConnections()
	began := cpuTime()
	b.ResetTimer()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r, _ := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://"+l.Addr().String(), nil)
			res, err := clients.RoundTrip(r)
			if err != nil {
				b.Error(err)
				return
			}
			n, _ := io.Copy(io.Discard, res.Body)
			if _ = res.Body.Close(); n != 1024 {
				b.Errorf("status %s, %d bytes", res.Status, n)
			}
		}
	})
	b.ReportMetric(float64((cpuTime()-began).Microseconds())/float64(b.N), "cpu-µs/op")
}
