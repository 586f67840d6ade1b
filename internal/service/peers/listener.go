// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/edge/framing"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

const (
	handshakeTimeout = 5 * time.Second
	maxHandshakes    = 64 // at a time; further connections wait in the kernel's queue
	protocolHTTP2    = "h2"
)

// inboundConn is a connection of a peer.
type inboundConn struct{ cancel context.CancelFunc }

// listener has the connections of peers: it admits those of replicas in the registry, and ends them
// when their replica leaves it.
type listener struct {
	id           string // id is this replica's.
	identity     *identity
	registry     *registry
	tunnels      *tunnel.Server // tunnels serves sessions.
	api          http.Handler   // api serves questions and changes.
	writeTimeout time.Duration  // writeTimeout bounds an answer of api.
	log          *slog.Logger

	mu      sync.Mutex                           // mu guards what follows.
	inbound map[string]map[*inboundConn]struct{} // inbound has connections by the caller's id.
}

// serve accepts connections until ctx is done. Then it closes l and the connections, and waits for
// what they serve.
func (li *listener) serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var conns sync.WaitGroup
	defer conns.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	queue := &connQueue{Listener: framing.NewListener()}
	server := li.httpServer()
	server.ConnState = queue.connState
	conns.Go(func() {
		<-ctx.Done()
		_ = server.Close()
	})
	conns.Go(func() { _ = server.Serve(queue) }) // ErrServerClosed
	config := li.identity.serverTLS(func(id string) error { return li.verifyCaller(ctx, id) })
	config.NextProtos = []string{tunnel.ALPN, protocolHTTP2}
	slots := make(chan struct{}, maxHandshakes)
	pause := time.Duration(0)
	for {
		raw, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = raw.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accepting replicas: %w", err)
		case err != nil: // out of descriptors, for instance: it passes
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			li.log.Error("accepting a replica's connection", "err", err, "retry_in", pause)
			timer.Sleep(ctx, pause)
			continue
		}
		pause = 0
		slots <- struct{}{}
		conns.Go(func() {
			li.serveConn(ctx, tls.Server(tunnel.TuneConn(raw), config), queue, func() { <-slots })
		})
	}
}

// verifyCaller refuses callers that the registry does not have.
func (li *listener) verifyCaller(ctx context.Context, id string) error {
	if id == li.id {
		return errors.New("the replica has dialed itself")
	}
	if li.registry.has(id) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if !li.registry.refreshFor(ctx, id) {
		return fmt.Errorf("replica %s is not in the registry", id)
	}
	return nil
}

// serveConn does the TLS handshake, calls done, and serves the connection by its protocol. It is
// closed when its replica leaves the registry.
func (li *listener) serveConn(ctx context.Context, c *tls.Conn, queue *connQueue, done func()) {
	shaking, cancel := context.WithTimeout(ctx, handshakeTimeout)
	err := c.HandshakeContext(shaking)
	cancel()
	done()
	id := ""
	if err == nil {
		id, err = replicaID(c.ConnectionState())
	}
	if err != nil {
		li.log.Debug("a replica's handshake failed", "remote", c.RemoteAddr(), "err", err)
		_ = c.NetConn().Close()
		return
	}
	ctx, cancel = context.WithCancel(context.WithValue(ctx, callerKey{}, id))
	defer cancel()
	conn := &inboundConn{cancel}
	if !li.add(id, conn) {
		_ = c.NetConn().Close()
		return
	}
	defer li.remove(id, conn)
	if c.ConnectionState().NegotiatedProtocol == tunnel.ALPN {
		if err := li.tunnels.ServeConn(ctx, c); err != nil {
			li.log.Debug("a replica's connection ended", "replica", id, "err", err)
		}
		return
	}
	queue.serve(ctx, c)
}

// add registers a connection, unless its replica has left the registry.
func (li *listener) add(id string, c *inboundConn) bool {
	li.mu.Lock()
	defer li.mu.Unlock()
	if !li.registry.has(id) {
		return false
	}
	if li.inbound[id] == nil {
		li.inbound[id] = make(map[*inboundConn]struct{})
	}
	li.inbound[id][c] = struct{}{}
	return true
}

func (li *listener) remove(id string, c *inboundConn) {
	li.mu.Lock()
	defer li.mu.Unlock()
	if delete(li.inbound[id], c); len(li.inbound[id]) == 0 {
		delete(li.inbound, id)
	}
}

// endOthers ends the connections of replicas that are not among the rows.
func (li *listener) endOthers(rows map[string]Replica) {
	li.mu.Lock()
	defer li.mu.Unlock()
	for id, conns := range li.inbound {
		if _, live := rows[id]; !live {
			for c := range conns {
				c.cancel()
			}
		}
	}
}

// httpServer returns the server of questions and changes. Its connections come from a connQueue.
func (li *listener) httpServer() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	return &http.Server{
		Handler: li.api, Protocols: protocols,
		ReadHeaderTimeout: handshakeTimeout, ReadTimeout: 2 * handshakeTimeout, IdleTimeout: time.Minute,
		WriteTimeout: li.writeTimeout, MaxHeaderBytes: 16 << 10,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 1000, SendPingTimeout: 2 * pingInterval,
			PingTimeout: pingTimeout},
		ErrorLog: slog.NewLogLogger(li.log.Handler(), slog.LevelDebug),
	}
}

// connQueue is the listener of the HTTP server.
type connQueue struct {
	*framing.Listener
	ends sync.Map // the server's connections: *tls.Conn to chan struct{}
}

// serve passes c to the HTTP server and waits until it is closed. It closes c when ctx is done.
func (q *connQueue) serve(ctx context.Context, c *tls.Conn) {
	end := make(chan struct{})
	q.ends.Store(c, end)
	if !q.Put(c) {
		q.ends.Delete(c)
		_ = c.NetConn().Close()
		return
	}
	defer context.AfterFunc(ctx, func() { _ = c.NetConn().Close() })()
	<-end
}

// connState is called by the HTTP server.
func (q *connQueue) connState(c net.Conn, state http.ConnState) {
	if state != http.StateClosed && state != http.StateHijacked {
		return
	}
	if end, ok := q.ends.LoadAndDelete(c); ok {
		close(end.(chan struct{}))
	}
}
