// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/logbuffer"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// tcpEnds returns the ends of a TCP connection.
func tcpEnds(t *testing.T) (near, far *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Close(), accepted.Close() })
	return c.(*net.TCPConn), accepted.(*net.TCPConn)
}

// TestPairPool_LendsYoung holds at which age a parked connection is used, replaced and closed.
func TestPairPool_LendsYoung(t *testing.T) {
	t.Parallel()
	near, far := tcpEnds(t)
	usedNear, _ := tcpEnds(t)
	spare, _ := tcpEnds(t)
	canary, canaryFar := tcpEnds(t)
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(clientParked)
		park := func(id uint64, c net.Conn) {
			if err := p.expect(id).park(TuneConn(c).(*tunedConn), func() error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		park(1, usedNear)
		time.Sleep(parkedUsable - time.Second)
		if p.count(time.Now().Add(-parkAgain)) != 0 {
			t.Error("it is not replaced before it is too old")
		}
		if c := p.takeUsable(); c == nil || c.id != 1 || p.takeUsable() != nil || p.take(1) != nil {
			t.Errorf("lent %+v", c)
		}
		park(2, near)
		time.Sleep(parkedUsable)
		if p.takeUsable() != nil {
			t.Error("an old connection was lent")
		}
		park(3, spare)
		time.Sleep(canaryParked)
		if !isClosed(spare) || isClosed(near) || p.takeUsable() != nil {
			t.Error("not one unused connection was kept, or it was lent")
		}
		time.Sleep(2*clientParked + time.Second)
		if !isClosed(near) || p.count(time.Time{}) > 0 {
			t.Error("an unused connection was not closed")
		}
		if p.dropCut() {
			t.Error("its end counts as a cut")
		}
		park(4, canary)
		time.Sleep(10*clientParked + time.Second)
		if _ = canaryFar.Close(); p.count(time.Time{}) != 1 {
			t.Error("none is kept")
		}
		time.Sleep(clientParked)
		if !p.dropCut() || !isClosed(canary) {
			t.Error("its end does not count as a cut")
		}
		if p.close(); p.expect(5) != nil {
			t.Error("a closed pool takes connections")
		}
	})
	if _, err := far.Read(make([]byte, 1)); err == nil {
		t.Error("the other end lives")
	}
}

// TestPairPool_WaitsForServersAnswer holds that a stream of the peer's gets its connection although its
// header is ahead of the server's answer to the ticket.
func TestPairPool_WaitsForServersAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(clientParked)
		for _, works := range []bool{true, false} {
			parked, took := p.expect(1), make(chan *tunedConn)
			go func() { took <- p.take(1) }()
			synctest.Wait()
			conn := TuneConn(nil).(*tunedConn)
			if works {
				_ = parked.park(conn, func() error { return nil })
			} else {
				parked.fail()
			}
			if got := <-took; (got == conn) != works {
				t.Errorf("works: %v, took %v", works, got)
			}
		}
	})
}

// TestParking_StopsWhereIdleConnectionsAreCut holds that sealed streams run in the multiplexer when the
// parked connections are cut, and that no further ones are parked.
func TestParking_StopsWhereIdleConnectionsAreCut(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, overTCP, newHandler())
	log := &logbuffer.Buffer{}
	client := h.startClient(ClientConfig{Connections: 1, Logger: slog.New(slog.NewTextHandler(log, nil))})
	s := client.awaitSession(t)
	st, err := s.Open(timeoutContext(t), OpenHeader{EndpointID: "e", Sealed: true})
	if err != nil {
		t.Fatal(err)
	}
	_ = st.Close()
	wait.Until(t, "a parked connection", func() bool { return usable(s) > 0 })
	h.closeConns(h.acceptedConns() - 1)
	wait.Until(t, "the end of it", func() bool {
		pool := s.links.active[0].pairs
		pool.mu.Lock()
		defer pool.mu.Unlock()
		return slices.ContainsFunc(all(pool.parked), func(c *parkedConn) bool { return hasEnded(c.conn) })
	})
	st, err = s.Open(timeoutContext(t), OpenHeader{EndpointID: "e", Sealed: true})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(st, "hello")
	_ = st.CloseWrite()
	if b, err := io.ReadAll(st); err != nil || string(b) != "hello" || st.pair != nil {
		t.Errorf("%q, %v, %v", b, err, st.pair)
	}
	wait.Until(t, "a line in the log", func() bool { return strings.Contains(log.String(), "cuts idle ones") })
	if n := usable(s); n > 0 {
		t.Errorf("%d connections are parked", n)
	}
	if p := client.cfg.PairBudget.SealedPaths(s); p.Raw != 0 || p.Mux != 2 || p.InUse+p.Parked != 0 ||
		p.Paused[PairsCut] != 1 {
		t.Errorf("%+v", p)
	}
}

func all(parked map[uint64]*parkedConn) (conns []*parkedConn) {
	for _, c := range parked {
		if c.conn != nil {
			conns = append(conns, c)
		}
	}
	return conns
}

// TestParking_OnlyWherePossible holds where nothing is parked.
func TestParking_OnlyWherePossible(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Client, *link)
		want   PairPause
	}{
		"everywhere else": {func(*Client, *link) {}, ""},
		"an older server": {func(_ *Client, l *link) { l.server.features = []Feature{FeatureSealed} },
			PairsUnsupported},
		"a WebSocket": {func(_ *Client, l *link) { l.conn.ws = &webSocket{} }, PairsWebSocket},
		"a client with a certificate": {func(c *Client, _ *link) { c.tls.Certificates = make([]tls.Certificate, 1) },
			PairsClientCertificate},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := NewClient(ClientConfig{Address: testAddress, TLS: clientTrust()})
			s := client.newSession(agentHello(), Welcome{SessionID: "ts_1"}, nil)
			l := &link{conn: &muxConn{}, server: serverSupport{features: serverFeatures()}}
			c.change(client, l)
			k := s.legs.parkingLocked(l)
			l.parking, s.links.active = k, []*link{l}
			if got := client.cfg.PairBudget.SealedPaths(s).Paused; (k == nil) != (c.want != "") ||
				(got[c.want] == 1) != (k == nil) {
				t.Errorf("parking: %v, paused: %v", k, got)
			}
		})
	}
}

// TestParking_DialsTheReplicaItself holds where connections are parked when there are replicas.
func TestParking_DialsTheReplicaItself(t *testing.T) {
	t.Parallel()
	own := []ReplicaAddress{{ID: "rp_2", Address: "192.0.2.2:443"}, {ID: "rp_1", Address: "192.0.2.1:443"}}
	for name, c := range map[string]struct {
		replicas  int
		addresses []ReplicaAddress
		want      string
	}{
		"alone":                 {1, nil, testAddress},
		"with its own address":  {3, own, "192.0.2.1:443"},
		"behind a balancer":     {3, own[:1], ""},
		"the last of several":   {1, own[:1], testAddress},
		"alone with an address": {1, own[1:], "192.0.2.1:443"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := NewClient(ClientConfig{Address: testAddress, TLS: clientTrust()})
			s := client.newSession(agentHello(), Welcome{ReplicaID: "rp_1", Replicas: c.replicas}, nil)
			l := &link{conn: &muxConn{}, server: serverSupport{features: serverFeatures()}, replicaID: "rp_1",
				addresses: c.addresses, ctx: t.Context()}
			l.parking = s.legs.parkingLocked(l)
			s.links.active = []*link{l}
			if _, got := l.parking.link(); got != c.want {
				t.Errorf("dials %q, want %q", got, c.want)
			}
			if c.want == "" {
				if err := l.parking.park(); pauseAfter(err) != PairsNoAddress {
					t.Errorf("parking: %v", err)
				}
			}
		})
	}
}

// TestPairPool_AvoidsWhatComesFromElsewhere holds that no stream gets a connection of a network that the
// client may have left, and that none is closed, which the client would take for a cut.
func TestPairPool_AvoidsWhatComesFromElsewhere(t *testing.T) {
	t.Parallel()
	near, _ := tcpEnds(t)
	p := newTestPool(serverParked)
	if err := p.expect(1).park(TuneConn(near).(*tunedConn), func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	p.avoid(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1})
	c := p.takeUsable()
	if c == nil {
		t.Fatal("a connection from the same address was not lent")
	}
	if p.putBack(c); p.takeUsable() != nil {
		t.Error("a connection was lent whose stream could not be opened")
	}
	c.since = time.Now()
	p.avoid(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1})
	if p.takeUsable() != nil || isClosed(near) || p.take(1) == nil {
		t.Error("a connection from another address was lent or closed")
	}
}
