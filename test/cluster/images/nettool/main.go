// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Command nettool is the end-to-end suite's client and server in a pod, or in the node's network.
// It answers and asks over HTTP and TCP, checks bytes by their SHA-256, and shows half-closes and
// aborts.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

const usage = `Usage: nettool COMMAND
  serve ADDR                   HTTP: / names who answered; /bytes?n=N has N known bytes; POST /sha256 the body's sum
  echo ADDR                    TCP: sends back what it reads, and the end after the end
  digest ADDR                  TCP: reads to the end, then answers "COUNT SHA256"; logs aborted connections
  get [-n COUNT] [-i INTERVAL] URL   looks the host up, then asks; COUNT 0 asks for ever
  first                        reads URLs from stdin, asks each until it answers 200, prints "URL UNIX-NANOSECONDS"
  hold [-for D] ADDR           to echo: one busy connection; prints how it ended
  load [-rate R] [-keep] [-for D] [-v] URL…   asks http:// and tcp:// URLs in turn, never twice for one answer,
                               until stdin ends; prints failures and totals
  lookup NAME                  prints the canonical name and the addresses
  send ADDR COUNT              to digest: COUNT bytes, half-close, compares the answer
  transfer ADDR COUNT          to echo: COUNT bytes there and back at once, compared
  abort ADDR COUNT             COUNT bytes, then a reset
  tcp ADDR                     joins stdin and stdout to a connection; the end of stdin is a half-close
  sleep                        waits for SIGTERM
`

func main() {
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1], os.Args[2:])
	stopped := ctx.Err() != nil
	stop()
	if err != nil && !stopped {
		fmt.Fprintf(os.Stderr, "nettool %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

func run(ctx context.Context, command string, args []string) error {
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
		return ""
	}
	count := func() (int64, error) { return strconv.ParseInt(arg(1), 10, 64) }
	switch command {
	case "serve":
		return serveHTTP(ctx, arg(0))
	case "echo":
		return serveTCP(ctx, arg(0), echo)
	case "digest":
		return serveTCP(ctx, arg(0), digest)
	case "get":
		return get(ctx, args)
	case "first":
		return first(ctx, os.Stdin)
	case "hold":
		return hold(ctx, args)
	case "load":
		return load(ctx, args)
	case "lookup":
		return lookup(ctx, arg(0))
	case "send", "transfer", "abort":
		n, err := count()
		if err != nil {
			return err
		}
		return map[string]func(context.Context, string, int64) error{"send": send, "transfer": transfer,
			"abort": abort}[command](ctx, arg(0), n)
	case "tcp":
		return join(ctx, arg(0))
	case "sleep":
		<-ctx.Done()
		return nil
	}
	fmt.Fprint(os.Stderr, usage)
	os.Exit(2)
	return nil
}

func lookup(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	cname, err := net.DefaultResolver.LookupCNAME(ctx, name)
	addrs, err2 := net.DefaultResolver.LookupHost(ctx, name)
	fmt.Printf("%s is %s at %v\n", name, cname, addrs)
	return errors.Join(err, err2)
}

func get(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("get", flag.ExitOnError)
	n := flags.Int("n", 1, "how many requests; 0 means for ever")
	interval := flags.Duration("i", 2*time.Second, "time between two requests")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	for i := 1; ; i++ {
		if err = request(ctx, flags.Arg(0)); err != nil {
			fmt.Println(err)
		}
		if i == *n {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(*interval):
		}
	}
}
