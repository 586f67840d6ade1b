// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"slices"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// tcp is a TCP connection as what is below a sealed one.
type tcp struct{ *net.TCPConn }

func (c tcp) WriteLater(p []byte) (int, error) { return c.Write(p) }

func (c tcp) Abort() error { return errors.Join(c.SetLinger(0), c.Close()) }

// crypto/tls reads on after a session ticket. A cut there must not look like an end either.
func TestRecords_CutAfterTicketIsNoEnd(t *testing.T) {
	t.Parallel()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	must.Succeed(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	must.Succeed(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	served := make(chan error, 1)
	go func() {
		raw, err := l.Accept()
		if err == nil {
			defer func() { _ = raw.Close() }()
			err = tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der},
				PrivateKey: key}}}).HandshakeContext(context.Background()) // sends a ticket
			err = errors.Join(err, raw.(*net.TCPConn).CloseWrite())
		}
		served <- err
	}()
	raw, err := net.Dial("tcp", l.Addr().String())
	must.Succeed(t, err)
	c := newConn(tcp{raw.(*net.TCPConn)}, tls.Client, &tls.Config{InsecureSkipVerify: true,
		ClientSessionCache: tls.NewLRUClientSessionCache(1)})
	must.Succeed(t, c.tls.HandshakeContext(t.Context()))
	must.Succeed(t, <-served)
	if b, err := c.Next(); len(b) > 0 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("read %q, %v", b, err)
	}
	must.Succeed(t, errors.Join(c.Abort(), l.Close()))
}

// flightBelow notes what records send; one that has a socket sends all bytes as they come.
type flightBelow struct {
	Below
	socket *net.TCPConn
	sent   []string
}

func (b *flightBelow) Socket() *net.TCPConn { return b.socket }

func (b *flightBelow) Write(p []byte) (int, error) {
	b.sent = append(b.sent, fmt.Sprint("now ", len(p)))
	return len(p), nil
}

func (b *flightBelow) WriteLater(p []byte) (int, error) {
	b.sent = append(b.sent, fmt.Sprint("later ", len(p)))
	return len(p), nil
}

// A full flight fills a frame of the multiplexer, and is one write where there are no frames.
func TestRecords_FlightIsOneWrite(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		socket *net.TCPConn
		want   []string
	}{
		"in the multiplexer": {nil, []string{"later 88", "now 65536"}},
		"in a pair":          {new(net.TCPConn), []string{"now 65624"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &flightBelow{socket: c.socket}
			r := &records{Below: b}
			r.cork()
			for range 4 {
				_, err := r.Write(make([]byte, 16<<10+22))
				must.Succeed(t, err)
			}
			if must.Succeed(t, r.uncork()); !slices.Equal(b.sent, c.want) {
				t.Errorf("sent %q", b.sent)
			}
		})
	}
}
