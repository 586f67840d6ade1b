// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"os"
	"time"
)

// pattern is an endless stream of bytes that is the same everywhere.
func pattern() io.Reader { return rand.NewChaCha8([32]byte{'n', 'e', 't', 't', 'o', 'o', 'l'}) }

func serveTCP(ctx context.Context, addr string, handle func(*net.TCPConn) error) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	fmt.Println("serving TCP on", addr)
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer func() { _ = c.Close() }()
			if err := handle(c.(*net.TCPConn)); err != nil {
				log.Printf("connection from %s: %v", c.RemoteAddr(), err)
			}
		}()
	}
}

func echo(c *net.TCPConn) error {
	if _, err := io.Copy(c, c); err != nil {
		return err
	}
	return c.CloseWrite()
}

func digest(c *net.TCPConn) error {
	h := sha256.New()
	n, err := io.Copy(h, c)
	if err != nil {
		return fmt.Errorf("after %d bytes: %w", n, err)
	}
	_, err = fmt.Fprintf(c, "%d %x\n", n, h.Sum(nil))
	return err
}

func dial(ctx context.Context, addr string) (*net.TCPConn, error) {
	c, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = c.Close() })
	return c.(*net.TCPConn), nil
}

// send proves a half-close: the answer comes after the end of what was sent.
func send(ctx context.Context, addr string, n int64) error {
	c, err := dial(ctx, addr)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	h := sha256.New()
	start := time.Now()
	if _, err := io.CopyN(io.MultiWriter(c, h), pattern(), n); err != nil {
		return err
	}
	if err := c.CloseWrite(); err != nil {
		return err
	}
	answer, err := io.ReadAll(io.LimitReader(c, 4096))
	if err != nil {
		return err
	}
	if want := fmt.Sprintf("%d %x\n", n, h.Sum(nil)); string(answer) != want {
		return fmt.Errorf("sent %q, the other side answered %q", want, answer)
	}
	report(n, h.Sum(nil), start)
	return nil
}

// transfer sends and reads back at once, and compares.
func transfer(ctx context.Context, addr string, n int64) error {
	c, err := dial(ctx, addr)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	start, sent, got := time.Now(), sha256.New(), sha256.New()
	done := make(chan error, 1)
	go func() {
		_, err := io.CopyN(io.MultiWriter(c, sent), pattern(), n)
		done <- errors.Join(err, c.CloseWrite())
	}()
	back, err := io.Copy(got, c)
	if err = errors.Join(err, <-done); err != nil {
		return fmt.Errorf("after %d bytes back: %w", back, err)
	}
	if back != n || string(sent.Sum(nil)) != string(got.Sum(nil)) {
		return fmt.Errorf("sent %d bytes %x, got %d bytes %x", n, sent.Sum(nil), back, got.Sum(nil))
	}
	report(n, got.Sum(nil), start)
	return nil
}

func report(n int64, sum []byte, start time.Time) {
	d := time.Since(start)
	fmt.Printf("%d bytes %x in %v, %.0f MB/s\n", n, sum, d.Round(time.Millisecond), float64(n)/1e6/d.Seconds())
}

func abort(ctx context.Context, addr string, n int64) error {
	c, err := dial(ctx, addr)
	if err != nil {
		return err
	}
	if _, err := io.CopyN(c, pattern(), n); err != nil {
		return err
	}
	return errors.Join(c.SetLinger(0), c.Close()) // a reset, not an end
}

func join(ctx context.Context, addr string) error {
	c, err := dial(ctx, addr)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	go func() {
		if _, err := io.Copy(c, os.Stdin); err == nil {
			_ = c.CloseWrite()
		}
	}()
	_, err = io.Copy(os.Stdout, c)
	return err
}
