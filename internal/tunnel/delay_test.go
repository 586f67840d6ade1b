// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"net"
	"sync"
	"time"
)

// dialWithDelay dials the server over a link with a delay in each direction and unlimited capacity.
func (h *testServer) dialWithDelay(delay time.Duration) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		near, err := h.dial(ctx, "", "")
		if err != nil {
			return nil, err
		}
		client, far := net.Pipe()
		h.serving.Go(func() { copyDelayed(near, far, delay) })
		h.serving.Go(func() { copyDelayed(far, near, delay) })
		return client, nil
	}
}

type delayedBytes struct {
	due time.Time
	b   []byte
}

// copyDelayed copies bytes, each after the delay.
func copyDelayed(to, from net.Conn, delay time.Duration) {
	var mu sync.Mutex
	var way []delayedBytes
	sent := make(chan struct{}, 1)
	var delivering sync.WaitGroup
	over := make(chan struct{})
	delivering.Go(func() {
		defer func() { _ = to.Close() }()
		for {
			mu.Lock()
			parcels := way
			way = nil
			mu.Unlock()
			for _, p := range parcels {
				time.Sleep(time.Until(p.due))
				if _, err := to.Write(p.b); err != nil {
					_ = from.Close()
					return
				}
			}
			if len(parcels) > 0 {
				continue
			}
			select {
			case <-sent:
			case <-over:
				return
			}
		}
	})
	for {
		b := make([]byte, 64<<10)
		n, err := from.Read(b)
		mu.Lock()
		way = append(way, delayedBytes{time.Now().Add(delay), b[:n]})
		mu.Unlock()
		select {
		case sent <- struct{}{}:
		default:
		}
		if err != nil {
			close(over)
			break
		}
	}
	delivering.Wait()
}
