// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"bytes"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// retiringUpstream is an HTTP/2 server in cleartext that repeats bodies. After one request its first
// connection waits for two, answers the first and gives back the second: by GOAWAY or by
// REFUSED_STREAM.
type retiringUpstream struct {
	refuses     bool
	connections atomic.Int32
	refused     atomic.Int32
}

func (u *retiringUpstream) serve(c *net.TCPConn) {
	retiring := u.connections.Add(1) == 1
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	f := http2.NewFramer(c, c)
	_ = f.WriteSettings()
	var ids []uint32
	bodies, ended := map[uint32][]byte{}, map[uint32]bool{}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck()
			}
		case *http2.HeadersFrame:
			if ids = append(ids, frame.StreamID); retiring && len(ids) == 3 {
				u.refused.Add(1)
				if u.refuses {
					_ = f.WriteRSTStream(ids[2], http2.ErrCodeRefusedStream)
				} else {
					_ = f.WriteGoAway(ids[1], http2.ErrCodeNo, nil)
				}
			}
			ended[frame.StreamID] = frame.StreamEnded()
		case *http2.DataFrame:
			bodies[frame.StreamID] = append(bodies[frame.StreamID], frame.Data()...)
			ended[frame.StreamID] = frame.StreamEnded()
		}
		for i, id := range ids {
			if ended[id] && (!retiring || i == 0 || len(ids) >= 3 && i != 2) {
				delete(ended, id)
				answer(f, id, bodies[id])
			}
		}
	}
}

func answer(f *http2.Framer, stream uint32, body []byte) {
	var head bytes.Buffer
	_ = hpack.NewEncoder(&head).WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head.Bytes(), EndHeaders: true})
	_ = f.WriteData(stream, true, body)
}

// TestEdge_ResendsRefusedHTTP2Requests: a request that the upstream has not processed goes
// to another connection, or there again, with its body.
func TestEdge_ResendsRefusedHTTP2Requests(t *testing.T) {
	t.Parallel()
	for name, refuses := range map[string]bool{"GOAWAY": false, "REFUSED_STREAM": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := &retiringUpstream{refuses: refuses}
			p := servicetest.NewPathTo(t, servicetest.Start(t), servicetest.ServeTCP(t, u.serve),
				func(b *tunnel.Bind) { b.UpstreamProtocol = "http2" })
			call := func(body string) {
				res := p.Forwarder.Do(p.Forwarder.Transport(p.Bound), "POST", p.Bound.URL+"/",
					strings.NewReader(body), nil)
				defer res.Body.Close()
				if got := servicetest.ReadAll(t, res.Body); res.StatusCode != 200 || got != body {
					t.Errorf("%d with %d bytes: %.200q", res.StatusCode, len(got), got)
				}
			}
			call("the first connection")
			var calls sync.WaitGroup
			for _, body := range []string{strings.Repeat("a", 9000), strings.Repeat("b", 9000)} {
				calls.Go(func() { call(body) })
			}
			calls.Wait()
			if u.refused.Load() != 1 {
				t.Errorf("%d requests were given back, want 1", u.refused.Load())
			}
		})
	}
}
