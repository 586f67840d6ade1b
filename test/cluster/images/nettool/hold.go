// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"time"
)

// hold keeps one connection to an echo server busy for a time, or until it ends, and prints every
// second how many lines came back. Then it half-closes, and nothing may be lost.
func hold(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("hold", flag.ExitOnError)
	forTime := flags.Duration("for", 0, "how long; 0 means until the connection breaks")
	if err := flags.Parse(args); err != nil {
		return err
	}
	c, err := dial(ctx, flags.Arg(0))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	n, err := holdOpen(c, *forTime)
	if err != nil {
		return fmt.Errorf("broke after %d lines: %w", n, err)
	}
	fmt.Println("whole after", n, "lines")
	return nil
}

func holdOpen(c *net.TCPConn, forTime time.Duration) (n int, err error) {
	began, r := time.Now(), bufio.NewReader(c)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for forTime == 0 || time.Since(began) < forTime {
		line := fmt.Sprintf("line %d\n", n)
		if _, err := io.WriteString(c, line); err != nil {
			return n, err
		}
		if got, err := r.ReadString('\n'); err != nil || got != line {
			return n, fmt.Errorf("%q came back: %w", got, err)
		}
		if n++; n%10 == 1 {
			fmt.Println("held for", n, "lines")
		}
		<-tick.C
	}
	if err := c.CloseWrite(); err != nil {
		return n, err
	}
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		return n, fmt.Errorf("instead of the end came %w", err)
	}
	return n, nil
}
