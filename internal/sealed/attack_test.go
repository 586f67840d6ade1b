// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed_test

import (
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// direction is one of a call at the service.
type direction int

const (
	toAgent direction = iota
	toForwarder
)

// relayWith returns a service that relays one direction with copyTo and the other as it should.
func relayWith(attacked direction, copyTo func(to, from *tunnel.Stream) error) serviceFunc {
	return func(forwarder, agent *tunnel.Stream) {
		faithful := func(to, from *tunnel.Stream) error {
			if _, err := io.Copy(struct{ io.Writer }{to}, struct{ io.Reader }{from}); err != nil {
				return err
			}
			return to.CloseWrite()
		}
		copies := [2]func(to, from *tunnel.Stream) error{faithful, faithful}
		copies[attacked] = copyTo
		var running sync.WaitGroup
		for d, ends := range [2][2]*tunnel.Stream{{agent, forwarder}, {forwarder, agent}} {
			running.Go(func() {
				if copies[d](ends[0], ends[1]) != nil {
					_ = ends[0].Abort()
					_ = ends[1].Abort()
				}
			})
		}
		running.Wait()
	}
}

// cutAfter relays n bytes and then ends the direction. cut is set if there were more.
func cutAfter(n int64, cut *atomic.Bool) func(to, from *tunnel.Stream) error {
	return func(to, from *tunnel.Stream) error {
		_, err := io.CopyN(struct{ io.Writer }{to}, struct{ io.Reader }{from}, n)
		if errors.Is(err, io.EOF) {
			return to.CloseWrite()
		}
		if err == nil {
			var b [1]byte
			_, err = from.Read(b[:])
			cut.Store(!errors.Is(err, io.EOF))
			_ = to.CloseWrite()
		}
		_, _ = io.Copy(io.Discard, struct{ io.Reader }{from})
		return nil
	}
}

// A cut at any byte must not look like an end of what the peer sent.
func TestConn_CutIsNoEnd(t *testing.T) {
	t.Parallel()
	for name, attacked := range map[string]direction{"to the agent": toAgent, "to the forwarder": toForwarder} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, owner := newWorld(t), newAuthority(t)
			as, _ := identity(t, owner.sign(t, nil))
			to := owner.trust(t)
			runCut := func(n int64) (wasCut bool) {
				var cut atomic.Bool
				e := w.connect(t, to, as, relayWith(attacked, cutAfter(n, &cut)))
				var untrusted *sealed.UntrustedError
				if errors.As(e.forwarderErr, &untrusted) { // it would look like an agent without a key
					t.Errorf("%d bytes: %v", n, e.forwarderErr)
				}
				var got []byte
				err := errors.Join(e.forwarderErr, e.agentErr)
				if err == nil {
					c := fromForwarder(e)
					if attacked == toForwarder {
						c = fromAgent(e)
					}
					_, writeErr := c[0].Write([]byte("all of it"))
					must.Succeed(t, errors.Join(writeErr, c[0].CloseWrite()))
					got, err = io.ReadAll(c[1])
					_, _ = c[0].Abort(), c[1].Abort()
				}
				if cut.Load() && err == nil || !cut.Load() && (err != nil || string(got) != "all of it") {
					t.Errorf("%d bytes, cut: %t: read %q, %v", n, cut.Load(), got, err)
				}
				return cut.Load()
			}
			n := int64(0)
			for runCut(n) {
				n += 61
			}
			for n = max(0, n-61-250); runCut(n); { // what follows the handshake, byte by byte
				n++
			}
		})
	}
}

// editRecords relays the records of a direction as edit returns them.
func editRecords(edit func(record []byte) []byte) func(to, from *tunnel.Stream) error {
	return func(to, from *tunnel.Stream) error {
		for {
			record := make([]byte, 5, 32<<10)
			if _, err := io.ReadFull(from, record); err != nil {
				return errors.Join(err, to.CloseWrite())
			}
			record = record[:5+int(binary.BigEndian.Uint16(record[3:]))]
			if _, err := io.ReadFull(from, record[5:]); err != nil {
				return err
			}
			if _, err := to.Write(edit(record)); err != nil {
				return err
			}
		}
	}
}

// The service changes, drops, repeats and exchanges records of established connections.
func TestConn_ForgedRecordsAreNotRead(t *testing.T) {
	t.Parallel()
	w, owner := newWorld(t), newAuthority(t)
	as, _ := identity(t, owner.sign(t, nil))
	to := owner.trust(t)
	var earlier []byte // a record of an earlier connection
	recorder := w.mustConnect(t, to, as, relayWith(toAgent, editRecords(func(record []byte) []byte {
		earlier = record
		return record
	})))
	_, err := recorder.forwarder.Write([]byte("first"))
	must.Succeed(t, err)
	if got, err := recorder.agent.Next(); string(got) != "first" || err != nil {
		t.Fatalf("read %q, %v", got, err)
	}
	crossed := [2]chan []byte{make(chan []byte, 1), make(chan []byte, 1)}
	for name, attack := range map[string]func(record []byte, other int) []byte{
		"flips a bit": func(record []byte, _ int) []byte { record[len(record)-1] ^= 1; return record },
		"changes the length": func(record []byte, _ int) []byte {
			record[4]--
			return record[:len(record)-1]
		},
		"changes the type":    func(record []byte, _ int) []byte { record[0] = 21; return record },
		"repeats":             func(record []byte, _ int) []byte { return append(record, record...) },
		"replays":             func([]byte, int) []byte { return earlier },
		"sends a plain alert": func([]byte, int) []byte { return []byte{21, 3, 3, 0, 2, 1, 0} }, // close_notify
		"sends plain bytes":   func([]byte, int) []byte { return append([]byte{23, 3, 3, 0, 5}, "plain"...) },
		"joins two connections": func(record []byte, other int) []byte {
			crossed[other] <- record
			return <-crossed[1-other]
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for attacked, of := range [2]func(ends) [2]*sealed.Conn{toAgent: fromForwarder, toForwarder: fromAgent} {
				attacked := direction(attacked)
				var reading sync.WaitGroup
				for i := range 2 {
					var armed atomic.Bool
					edit := func(record []byte) []byte {
						if armed.CompareAndSwap(true, false) {
							return attack(record, i)
						}
						return record
					}
					c := of(w.mustConnect(t, to, as, relayWith(attacked, editRecords(edit))))
					armed.Store(true)
					_, err := c[0].Write([]byte("secret"))
					must.Succeed(t, errors.Join(err, c[0].CloseWrite()))
					reading.Go(func() {
						got, err := io.ReadAll(c[1])
						if err == nil || string(got) != "" && (name != "repeats" || string(got) != "secret") {
							t.Errorf("read %q, %v", got, err)
						}
						_ = c[1].Abort()
					})
				}
				reading.Wait()
			}
		})
	}
}

// The service ends the stream after close_notify in another way than the peer did, or goes on.
func TestConn_EndNeedsBothLayers(t *testing.T) {
	t.Parallel()
	w, owner := newWorld(t), newAuthority(t)
	as, _ := identity(t, owner.sign(t, nil))
	for name, end := range map[string]func(to *tunnel.Stream) error{
		"abort": (*tunnel.Stream).Abort,
		"bytes": func(to *tunnel.Stream) error { _, err := to.Write([]byte{23}); return err },
	} {
		e := w.mustConnect(t, owner.trust(t), as, relayWith(toAgent, func(to, from *tunnel.Stream) error {
			if _, err := io.Copy(struct{ io.Writer }{to}, struct{ io.Reader }{from}); err != nil {
				return err
			}
			return end(to)
		}))
		_, err := e.forwarder.Write([]byte("x"))
		must.Succeed(t, errors.Join(err, e.forwarder.CloseWrite()))
		if got, err := io.ReadAll(e.agent); err == nil || string(got) != "x" {
			t.Errorf("%s: read %q, %v", name, got, err)
		}
		_, _ = e.forwarder.Abort(), e.agent.Abort()
	}
}
