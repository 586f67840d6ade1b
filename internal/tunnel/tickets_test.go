// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// present presents a ticket and returns what the server answered until it closed the connection, or
// its first byte.
func (h *testServer) present(t *testing.T, ticket []byte) (answer []byte, c net.Conn) {
	t.Helper()
	c, err := h.dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, _ = c.Write(append([]byte{ticketByte}, ticket...))
	answer = make([]byte, 1)
	n, err := c.Read(answer)
	if isTimeout(err) {
		t.Fatal("the connection was neither parked nor closed")
	}
	return answer[:n], c
}

func askForTicket(t *testing.T, s *Session) (*ticketed, error) {
	t.Helper()
	answer, err := s.requests.sendOver(timeoutContext(t), s.links.active[0], &message{Type: typeTicket})
	if err != nil {
		return nil, err
	}
	return answer.Ticketed, nil
}

func TestTickets_CountOnce(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, overTCP, newHandler())
	s := h.startClient(ClientConfig{Connections: 1}).awaitSession(t)
	issued, err := askForTicket(t, s)
	if err != nil {
		t.Fatal(err)
	}
	guessed := bytes.Clone(issued.Ticket)
	guessed[ticketSize-1] ^= 1
	for _, c := range []struct {
		name   string
		ticket []byte
		want   string
	}{
		{"another one", guessed, ""},
		{"the one issued", issued.Ticket, "\x01"},
		{"the same again", issued.Ticket, ""},
	} {
		if got, _ := h.present(t, c.ticket); string(got) != c.want {
			t.Errorf("%s: answered %q", c.name, got)
		}
	}
	last, err := askForTicket(t, s)
	if err != nil || bytes.Equal(last.Ticket, issued.Ticket) || last.PairID == issued.PairID {
		t.Fatalf("%+v, %v", last, err)
	}
	_ = s.Close()
	wait.Receive(t, "the session's end", h.handler.downs)
	if got, _ := h.present(t, last.Ticket); len(got) > 0 {
		t.Errorf("a session that has ended: answered %q", got)
	}
}

// TestTickets_ParkedEndWithSession holds that the server keeps nothing that a session has parked.
func TestTickets_ParkedEndWithSession(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, overTCP, newHandler())
	s := h.startClient(ClientConfig{Connections: 1}).awaitSession(t)
	issued, err := askForTicket(t, s)
	if err != nil {
		t.Fatal(err)
	}
	_, parked := h.present(t, issued.Ticket)
	_ = s.Close()
	if _, err := parked.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("read: %v", err)
	}
}

func TestTickets_AreBounded(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, overTCP, newHandler())
	s := h.startClient(ClientConfig{Connections: 1}).awaitSession(t)
	for i := range maxParked {
		issued, err := askForTicket(t, s)
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			h.present(t, issued.Ticket)
		}
	}
	var refused *Error
	if _, err := askForTicket(t, s); !errors.As(err, &refused) || refused.Code != CodeLimit {
		t.Errorf("%d tickets and parked connections, and one more: %v", maxParked, err)
	}
}

func TestTickets_Expire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var all tickets
		pool := newTestPool(serverParked)
		early, _ := all.issue(pool)
		late, _ := all.issue(pool)
		time.Sleep(ticketLifetime - time.Millisecond)
		if _, err := all.redeem(early.Ticket); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Millisecond)
		if _, err := all.redeem(late.Ticket); !errors.Is(err, errTicket) || len(all.issued)+pool.tickets > 0 {
			t.Errorf("%v, %d are kept", err, len(all.issued))
		}
	})
}

// TestServer_DoesNotWaitForTicket holds that a connection which does not finish its ticket is closed.
func TestServer_DoesNotWaitForTicket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		began := time.Now()
		go func() { _, _ = near.Write(append([]byte{ticketByte}, make([]byte, ticketSize-1)...)) }()
		err := NewServer(ServerConfig{Handler: newHandler()}).ServeTicket(t.Context(), TuneConn(far))
		if took := time.Since(began); err == nil || took != parkTimeout {
			t.Errorf("%v after %s", err, took)
		}
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("read: %v", err)
		}
	})
}
