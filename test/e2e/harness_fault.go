// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// fault is what becomes of new connections to a faultProxy.
type fault int

const (
	pass       fault = iota // they reach the service
	gone                    // nothing listens
	answer500               // TLS, then an HTTP answer, whatever was asked
	answer401               // as the API words it
	answerHTML              // 200
	answerHalf              // 200, a JSON document that breaks off
	silentTCP               // accepted, and nothing more
	silentTLS               // the handshake is done, and nothing more
)

func (f fault) String() string {
	return [...]string{"pass", "gone", "500", "401", "HTML", "half a JSON document", "silence after TCP",
		"silence after TLS"}[f]
}

var faultAnswers = map[fault]string{
	answer500: "HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/plain\r\nContent-Length: 5\r\nConnection: " +
		"close\r\n\r\noops\n",
	answer401: "HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" +
		`{"error_code":"ERR_FL_1002","status_code":401,"msg":"the API key is not known","details":{}}`,
	answerHTML: "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<html><body>Please log in to " +
		"the network</body></html>",
	answerHalf: "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" +
		`{"endpoints":[{"id":"ep-`,
}

// faultProxy stands at an address of its own before a service and passes connections through, byte
// for byte, until it is told otherwise. API and tunnel connections are told apart by their
// ClientHello. It runs in this process, with sockets of the node's network.
type faultProxy struct {
	c            *Cluster
	addr, target string
	cert         tls.Certificate
	serving      sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener // nil while all is gone
	faults   [2]fault     // of apiConn and tunnelConn
	conns    map[*proxiedConn]bool
	accepted time.Time // the first connection that the service got since the last change
}

// connKind is which of the two protocols a connection carries.
type connKind int

const (
	apiConn connKind = iota
	tunnelConn
)

// proxiedConn is one connection.
type proxiedConn struct {
	net.Conn
	kind   connKind
	passed bool
	frozen chan struct{} // closed when nothing moves any more, though the connection stands
	closed chan struct{}
	once   sync.Once
}

// freeAddr is an address of the node that nothing else in this process uses.
func freeAddr() string { return fmt.Sprintf("%s:%d", NodeIP, firstPort+int(product.ports.Add(1))) }

// startFaultProxy puts a proxy before the service until the end of the test, and returns the
// service as it looks through it.
func (s *Service) startFaultProxy(t testing.TB) (*faultProxy, *Service) {
	t.Helper()
	file := filepath.Join(s.dir, "data", "server.pem")
	cert, err := tls.LoadX509KeyPair(file, file)
	must.Succeed(t, err)
	via := *s
	via.addr = freeAddr()
	via.URL = "https://" + via.addr
	p := &faultProxy{c: s.c, addr: via.addr, target: s.addr, cert: cert, conns: map[*proxiedConn]bool{}}
	must.Succeed(t, p.set(pass, pass))
	t.Cleanup(func() {
		if err := p.set(gone, gone); err != nil {
			t.Error(err)
		}
		p.cut(apiConn, tunnelConn)
		p.serving.Wait()
	})
	return p, &via
}

// set chooses what becomes of new connections. Those that the last fault holds are cut, as the
// restart of a server does it; those that reach the service stay.
func (p *faultProxy) set(api, tunnels fault) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = [2]fault{api, tunnels}
	p.accepted = time.Time{}
	for conn := range p.conns {
		if !conn.passed {
			conn.reset()
		}
	}
	switch all := api == gone && tunnels == gone; {
	case all && p.listener != nil:
		err := p.listener.Close()
		p.listener = nil
		return err
	case !all && p.listener == nil:
		l, err := p.c.listen(context.Background(), p.addr)
		if err != nil {
			return err
		}
		p.listener = l
		p.serving.Go(func() { p.accept(l) })
	}
	return nil
}

// cut resets the connections of these kinds.
func (p *faultProxy) cut(kinds ...connKind) {
	p.forEach(kinds, (*proxiedConn).reset)
}

// freeze lets the connections of these kinds stand for ever, and moves nothing on them any more.
func (p *faultProxy) freeze(kinds ...connKind) {
	p.forEach(kinds, func(c *proxiedConn) {
		select {
		case <-c.frozen:
		default:
			close(c.frozen)
		}
	})
}

func (p *faultProxy) forEach(kinds []connKind, do func(*proxiedConn)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		if slices.Contains(kinds, conn.kind) {
			do(conn)
		}
	}
}

// firstAccepted returns when the service got its first connection since the last change; zero while
// there was none.
func (p *faultProxy) firstAccepted() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

func (p *faultProxy) accept(l net.Listener) {
	for {
		raw, err := l.Accept()
		if err != nil {
			return
		}
		conn := &proxiedConn{Conn: raw, frozen: make(chan struct{}), closed: make(chan struct{})}
		p.mu.Lock()
		p.conns[conn] = true
		p.mu.Unlock()
		p.serving.Go(func() {
			p.serve(conn)
			conn.reset()
			p.mu.Lock()
			delete(p.conns, conn)
			p.mu.Unlock()
		})
	}
}

// reset resets the connection.
func (c *proxiedConn) reset() {
	c.once.Do(func() {
		close(c.closed)
		_ = c.Conn.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	})
}

func (p *faultProxy) serve(conn *proxiedConn) {
	p.mu.Lock()
	both := p.faults
	p.mu.Unlock()
	if both == [2]fault{silentTCP, silentTCP} {
		<-conn.closed
		return
	}
	hello, protocols := readClientHello(conn)
	p.mu.Lock()
	if slices.Contains(protocols, tunnel.ALPN) {
		conn.kind = tunnelConn
	}
	f := p.faults[conn.kind]
	conn.passed = f == pass
	if f == pass && p.accepted.IsZero() {
		p.accepted = time.Now()
	}
	p.mu.Unlock()
	switch f {
	case pass:
		p.pass(conn, hello)
	case gone:
	case silentTCP:
		<-conn.closed
	default:
		p.answer(conn, hello, f)
	}
}

// pass joins the connection to the service.
func (p *faultProxy) pass(conn *proxiedConn, hello []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	up, err := p.c.DialContext(ctx, "tcp", p.target)
	if err != nil {
		return // a service that is down, as it is
	}
	defer func() { _ = up.Close() }()
	if _, err := up.Write(hello); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() {
		if conn.copy(up, conn.Conn) != nil {
			_ = up.Close()
		} else {
			_ = up.(*net.TCPConn).CloseWrite()
		}
	})
	if conn.copy(conn.Conn, up) != nil {
		conn.reset()
	} else {
		_ = conn.Conn.(*net.TCPConn).CloseWrite()
	}
	both.Wait()
}

// copy moves bytes until the end, an error, or for as long as the connection stands when it is
// frozen.
func (c *proxiedConn) copy(to io.Writer, from io.Reader) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		select {
		case <-c.frozen:
			<-c.closed
			return errors.New("frozen")
		default:
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// answer does the handshake without ALPN, as something before the service that knows only HTTP, and
// answers or is silent.
func (p *faultProxy) answer(conn *proxiedConn, hello []byte, f fault) {
	c := tls.Server(&prefixedConn{Conn: conn.Conn, first: bytes.NewReader(hello)},
		&tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{p.cert}})
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if c.HandshakeContext(context.Background()) != nil {
		return
	}
	if f == silentTLS {
		<-conn.closed
		return
	}
	if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
		return
	}
	_, _ = io.WriteString(c, faultAnswers[f])
	_ = c.CloseWrite()
	_, _ = io.Copy(io.Discard, c) // until the client hangs up: a reset could overtake the answer
}

// prefixedConn reads bytes that were read before once more, then the connection.
type prefixedConn struct {
	net.Conn
	first *bytes.Reader
}

func (r *prefixedConn) Read(b []byte) (int, error) {
	if r.first.Len() > 0 {
		return r.first.Read(b)
	}
	return r.Conn.Read(b)
}

// readClientHello reads what a client says first, without answering, and returns it with the
// protocols that it offers.
func readClientHello(conn *proxiedConn) (raw []byte, protocols []string) {
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	var read bytes.Buffer
	listening := &readOnlyConn{Conn: conn.Conn, from: io.TeeReader(conn.Conn, &read)}
	_ = tls.Server(listening, &tls.Config{MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			protocols = h.SupportedProtos
			return nil, errors.New("seen enough")
		}}).HandshakeContext(context.Background())
	_ = conn.SetReadDeadline(time.Time{})
	return read.Bytes(), protocols
}

// readOnlyConn discards what is written.
type readOnlyConn struct {
	net.Conn
	from io.Reader
}

func (m *readOnlyConn) Read(b []byte) (int, error)  { return m.from.Read(b) }
func (m *readOnlyConn) Write(b []byte) (int, error) { return len(b), nil }
