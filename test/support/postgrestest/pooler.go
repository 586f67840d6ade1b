// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package postgrestest

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// Pool returns the URL of a transaction pooler before the server: each transaction of a client has
// the connection to the server that was used last, or another one when all are busy.
func (s *Server) Pool(t testing.TB, databaseURL string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	listener, relayURL := listenBefore(t, databaseURL)
	p := &pooler{ctx: ctx, databaseURL: databaseURL}
	var clients sync.WaitGroup
	clients.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(ctx, func() { _ = client.Close() })
			clients.Go(func() {
				defer stop()
				defer func() { _ = client.Close() }()
				_ = p.serve(client) // the connection's end
			})
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		clients.Wait()
		for _, c := range p.idle {
			_ = c.Close()
		}
	})
	return relayURL
}

type pooler struct {
	ctx         context.Context
	databaseURL string
	mu          sync.Mutex
	idle        []net.Conn // to the server
}

// serve relays the messages of a client, each transaction by one connection.
func (p *pooler) serve(client net.Conn) error {
	backend := pgproto3.NewBackend(client, client)
	if _, err := backend.ReceiveStartupMessage(); err != nil {
		return err
	}
	for _, m := range []pgproto3.BackendMessage{&pgproto3.AuthenticationOk{},
		&pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"},
		&pgproto3.ParameterStatus{Name: "standard_conforming_strings", Value: "on"},
		&pgproto3.ParameterStatus{Name: "default_transaction_read_only", Value: "off"},
		&pgproto3.ParameterStatus{Name: "in_hot_standby", Value: "off"},
		&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: make([]byte, 4)},
		&pgproto3.ReadyForQuery{TxStatus: 'I'}} {
		backend.Send(m)
	}
	if err := backend.Flush(); err != nil {
		return err
	}
	var server net.Conn // nil between transactions
	defer func() {
		if server != nil {
			_ = server.Close()
		}
	}()
	for {
		message, err := backend.Receive()
		if err != nil {
			return err
		}
		if server == nil {
			if server, err = p.acquire(); err != nil {
				return err
			}
		}
		frontend := pgproto3.NewFrontend(server, server)
		frontend.Send(message)
		if err := frontend.Flush(); err != nil {
			return err
		}
		switch message.(type) {
		case *pgproto3.Query, *pgproto3.Sync:
		case *pgproto3.Terminate:
			return nil
		default:
			continue
		}
		inTransaction, err := relayAnswer(frontend, backend)
		if err != nil {
			return err
		}
		if !inTransaction { // before the client knows
			p.release(server)
			server = nil
		}
		if err := backend.Flush(); err != nil {
			return err
		}
	}
}

// relayAnswer relays the answer to what the client asked for, without flushing it.
func relayAnswer(frontend *pgproto3.Frontend, backend *pgproto3.Backend) (inTransaction bool, err error) {
	for {
		m, err := frontend.Receive()
		if err != nil {
			return false, err
		}
		backend.Send(m)
		if ready, ok := m.(*pgproto3.ReadyForQuery); ok {
			inTransaction = ready.TxStatus != 'I'
			return inTransaction, nil
		}
	}
}

func (p *pooler) acquire() (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := len(p.idle) - 1; last >= 0 {
		c := p.idle[last]
		p.idle = p.idle[:last]
		return c, nil
	}
	c, err := pgconn.Connect(p.ctx, p.databaseURL)
	if err != nil {
		return nil, err
	}
	hijacked, err := c.Hijack()
	if err != nil {
		return nil, errors.Join(err, c.Close(p.ctx))
	}
	return hijacked.Conn, nil
}

func (p *pooler) release(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, c)
}
