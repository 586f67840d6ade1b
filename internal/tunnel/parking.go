// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/tunnel/connread"
)

const (
	maxWantedParked = 8
	parkAgain       = 45 * time.Second // age at which a parked connection is replaced
	parkingEnds     = 5 * time.Minute  // without a sealed stream
	cutPause        = 6 * time.Hour    // after something on the way has cut an idle connection
	minParkPause    = time.Second      // after a failure, doubled by each further one
	maxParkPause    = 10 * time.Minute
	parkCheck       = 5 * time.Second // between two looks at the parked connections
)

var (
	errNoRoom    = &Error{Code: CodeLimit, Msg: "this process has no room for further connections of sealed streams"}
	errNoAddress = errors.New("the server has announced no address of its own")
)

// parking parks connections of a client's session with one replica, for sealed streams that either
// side opens there. It begins with the first one.
type parking struct {
	session *Session
	client  *Client
	pool    *pairPool
	ctx     context.Context // ctx ends with the last connection of the replica.
	cancel  context.CancelFunc
	changed chan struct{} // changed gets a token when a sealed stream was opened.

	mu        sync.Mutex
	isRunning bool
	wanted    int
	missed    bool      // missed is set when a stream found no connection in this round.
	lastUse   time.Time // lastUse is when the last sealed stream was opened.
	paused    PairPause // paused is why the last attempt failed; "" = it did not.
}

// parkingLocked returns the parking at the replica behind a new connection: that of another connection
// with it, or a new one. It is nil where nothing may be parked.
func (g *clientLegs) parkingLocked(l *link) *parking {
	switch {
	case !slices.Contains(l.server.features, FeaturePairs) || !connread.CanPoll:
		l.noPairs = PairsUnsupported
	case l.conn.ws != nil:
		l.noPairs = PairsWebSocket
	case hasClientCertificate(g.client.tls):
		l.noPairs = PairsClientCertificate
	}
	if l.noPairs != "" {
		return nil
	}
	for _, o := range g.session.links.all() {
		if o.parking != nil && o.replicaID == l.replicaID {
			return o.parking
		}
	}
	k := &parking{session: g.session, client: g.client, pool: newPairPool(clientParked,
		g.client.cfg.PairBudget, g.session.welcome.AccountID), wanted: 1, changed: make(chan struct{}, 1)}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	return k
}

// endParkingLocked ends what the last connection with a replica has left parked there.
func (g *clientLegs) endParkingLocked(l *link) {
	if l.parking == nil || slices.ContainsFunc(g.session.links.all(),
		func(o *link) bool { return o.parking == l.parking }) {
		return
	}
	l.parking.cancel()
	l.parking.pool.close()
}

// streamOpened records that either side has opened a sealed stream.
func (k *parking) streamOpened(hasPair bool) {
	k.mu.Lock()
	k.lastUse = time.Now()
	if !hasPair {
		k.missed = true
		if k.isRunning {
			k.wanted = min(2*k.wanted, maxWantedParked)
		}
	}
	starts := !k.isRunning
	k.mu.Unlock()
	if starts {
		k.start()
	}
	wake(k.changed)
}

// start runs the parking unless it runs or its session is about to end.
func (k *parking) start() {
	k.session.mu.Lock()
	defer k.session.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.isRunning && !k.session.closing && k.ctx.Err() == nil {
		k.isRunning = true
		k.client.goroutines.Go(k.run)
	}
}

// run parks connections until there was no sealed stream for parkingEnds.
func (k *parking) run() {
	log := k.client.cfg.Logger.With("session", k.session.ID())
	pause, roundEnds := minParkPause, time.Now().Add(parkAgain)
	for {
		wanted := k.update(&roundEnds)
		switch {
		case wanted == 0:
			return
		case k.pool.dropCut() && k.isConnected():
			log.Info("sealed connections share those of the session for a while: something on the way cuts idle ones",
				"pause", cutPause)
			k.setPaused(PairsCut)
			timer.Sleep(k.ctx, cutPause)
		case k.pool.count(time.Now().Add(-parkAgain)) >= wanted:
			look := time.NewTimer(parkCheck)
			select {
			case <-k.changed:
			case <-look.C:
			case <-k.ctx.Done():
			}
			look.Stop()
		default:
			err := k.park()
			changed := k.setPaused(pauseAfter(err))
			if err != nil {
				if changed {
					log.Info("sealed connections share those of the session: no other can be parked", "error", err)
				}
				timer.Sleep(k.ctx, pause)
				pause = min(2*pause, maxParkPause)
			} else {
				pause = minParkPause
			}
		}
	}
}

// update returns how many connections are wanted; 0 = parking has ended.
func (k *parking) update(roundEnds *time.Time) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if k.ctx.Err() != nil || now.Sub(k.lastUse) >= parkingEnds {
		k.isRunning, k.wanted = false, 1
		return 0
	}
	if now.After(*roundEnds) {
		if !k.missed {
			k.wanted = max(1, k.wanted/2)
		}
		k.missed, *roundEnds = false, now.Add(parkAgain)
	}
	return k.wanted
}

// link returns a connection with the replica, and its address, "" = it has none at which the client can
// be sure to reach it.
func (k *parking) link() (l *link, address string) {
	k.session.mu.Lock()
	defer k.session.mu.Unlock()
	for _, o := range k.session.links.all() {
		if o.parking != k || o.ctx.Err() != nil {
			continue
		}
		for _, a := range k.client.addresses.usable(slices.Clone(o.addresses)) {
			if a.ID == o.replicaID {
				return o, a.Address
			}
		}
		if k.session.legs.replicas <= 1 {
			address = k.client.cfg.Address
		}
		return o, address
	}
	return nil, ""
}

// isConnected reports whether the replica answers, and does not stop.
func (k *parking) isConnected() bool {
	l, _ := k.link()
	if l == nil || l.peerDraining.Err() != nil {
		return false
	}
	_, err := l.mux.Ping()
	return err == nil
}

// park parks one connection.
func (k *parking) park() error {
	l, address := k.link()
	if l == nil || address == "" {
		return errNoAddress
	}
	ctx, cancel := context.WithTimeout(k.ctx, controlTimeout)
	defer cancel()
	if address != k.client.cfg.Address {
		if err := k.client.addresses.check(ctx, address); err != nil {
			return err
		}
	}
	if !k.pool.reserve() {
		return errNoRoom
	}
	parked, ticket, err := k.expect(ctx, l)
	if err != nil {
		k.pool.release()
		return err
	}
	conn, err := k.present(ctx, address, ticket)
	if err != nil {
		parked.fail()
		return err
	}
	return parked.park(conn, func() error { return nil })
}

// expect asks the server for a ticket, and makes the pool expect its connection.
func (k *parking) expect(ctx context.Context, l *link) (*parkedConn, []byte, error) {
	answer, err := k.session.requests.sendOver(ctx, l, &message{Type: typeTicket})
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("asking for a ticket: %w", err)
	case answer.Ticketed == nil:
		return nil, nil, fmt.Errorf("asking for a ticket: the server answered with %q", answer.Type)
	}
	parked := k.pool.expect(answer.Ticketed.PairID)
	if parked == nil {
		return nil, nil, net.ErrClosed
	}
	return parked, answer.Ticketed.Ticket, nil
}

// present dials the server and presents a ticket.
func (k *parking) present(ctx context.Context, address string, secret []byte) (*tunedConn, error) {
	raw, err := k.client.cfg.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("dialing %s: %w", address, err)
	}
	if _, ok := raw.(*net.TCPConn); !ok {
		_ = raw.Close()
		return nil, fmt.Errorf("the connection with %s is no TCP connection", address)
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	conn := TuneConn(raw).(*tunedConn)
	_ = raw.SetDeadline(time.Now().Add(parkTimeout))
	answer := make([]byte, 1)
	if _, err = raw.Write(append([]byte{ticketByte}, secret...)); err == nil {
		_, err = io.ReadFull(raw, answer) // and not a byte beyond it
	}
	if err == nil && answer[0] != parkedByte {
		err = fmt.Errorf("it answered with byte %#02x", answer[0])
	}
	if err == nil && !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("presenting a ticket to %s: %w", address, err)
	}
	_ = raw.SetDeadline(time.Time{})
	return conn, nil
}

// PairPause is why a client parks no connections for sealed streams at a replica of the server.
type PairPause string

// Reasons of a PairPause.
const (
	PairsUnsupported       PairPause = "unsupported" // the server's version or system, or this system
	PairsWebSocket         PairPause = "websocket"   // WebSockets carry the session.
	PairsClientCertificate PairPause = "client_certificate"
	PairsNoAddress         PairPause = "no_address" // one of several replicas, without an address of its own
	PairsCut               PairPause = "cut"        // something on the way has cut one.
	PairsLimit             PairPause = "limit"      // Here or at the server, descriptors allow no more.
	PairsFailed            PairPause = "failed"     // a connection could not be made.
)

// PairPauses returns all reasons of a PairPause.
func PairPauses() []PairPause {
	return []PairPause{PairsUnsupported, PairsWebSocket, PairsClientCertificate, PairsNoAddress, PairsCut, PairsLimit,
		PairsFailed}
}

// pauseAfter returns why parking pauses after an attempt that returned err.
func pauseAfter(err error) PairPause {
	var refused *Error
	switch {
	case err == nil:
		return ""
	case errors.Is(err, errNoAddress):
		return PairsNoAddress
	case errors.As(err, &refused) && refused.Code == CodeLimit:
		return PairsLimit
	}
	return PairsFailed
}

// setPaused records why the last attempt to park failed, and reports whether that has changed.
func (k *parking) setPaused(p PairPause) (changed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	changed, k.paused = k.paused != p, p
	return changed
}

// pairPauseLocked returns why nothing is parked at the replica behind l; "" = nothing keeps the client
// from it. The session's mutex must be held.
func (l *link) pairPauseLocked() PairPause {
	if l.parking == nil {
		return l.noPairs
	}
	l.parking.mu.Lock()
	defer l.parking.mu.Unlock()
	return l.parking.paused
}
