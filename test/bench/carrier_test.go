// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/fairlead-dev/fairlead/internal/tunnel/connectproxy"
)

// native is our chain as it is usually, beside the one that WebSockets carry.
const native = "native"

// webSocketDialer returns a dialer that makes a tunnel's client choose WebSockets: what it dials
// first is cut.
func (i *installation) webSocketDialer() connectproxy.DialFunc {
	if !i.WebSocket {
		return nil
	}
	var dialed atomic.Int32
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil && dialed.Add(1) <= 2 {
			_ = conn.Close() // its use fails
		}
		return conn, err
	}
}

// carrier measures the chain that WebSockets carry beside the native one.
func (r *chainBench) carrier(keys string, up upstreams) func() {
	var web *chain
	return func() {
		if web == nil {
			web = startChain(r.b, webSockets, keys, up)
			if _, err := setUps(web.tcp, 50, 10); err != nil {
				r.b.Fatalf("%s: %v", web.name, err)
			}
		}
		for _, upwards := range []bool{false, true} {
			name := fmt.Sprintf("as WebSockets, %s: CPU", map[bool]string{false: "down", true: "up"}[upwards])
			r.reportProgress(name)
			for chain, c := range map[string]*chain{native: r.chains[0], ours: web} {
				cpu, _ := c.busy(r.b, func() error { return bulk(c.tcp, upwards, r.size.bulk, 16) })
				r.report.add(name, "s/GB", goal{over: native}, chain, cpu.Seconds()/(float64(r.size.bulk)/1e9))
			}
		}
	}
}
