// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Command interop is client and server of gRPC's own interoperability tests, for the tests of the
// edge in test/grpc. It owns nothing: the cases are those of google.golang.org/grpc/interop. It is
// a module of its own, so that gRPC is no dependency of the product. What comes in: flags; `interop
// serve` prints the address it listens on and ends with its standard input, `interop call CASE`
// exits with 1 and prints the reason when the case fails.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/orca"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("usage: interop serve|call")
	}
	switch args[0] {
	case "serve":
		return serve(args[1:])
	case "call":
		return call(args[1:])
	}
	return fmt.Errorf("%q is neither serve nor call", args[0])
}

// serve serves until standard input ends.
func serve(args []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	cert := flags.String("tls-cert", "", "the certificate; without it, HTTP/2 in cleartext")
	key := flags.String("tls-key", "", "the certificate's key")
	if err := flags.Parse(args); err != nil {
		return err
	}
	opts := []grpc.ServerOption{orca.CallMetricsServerOption(nil)}
	if *cert != "" {
		creds, err := credentials.NewServerTLSFromFile(*cert, *key)
		if err != nil {
			return err
		}
		opts = append(opts, grpc.Creds(creds))
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := grpc.NewServer(opts...)
	testgrpc.RegisterTestServiceServer(server, interop.NewTestServer())
	fmt.Println(l.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		server.Stop()
	}()
	return server.Serve(l)
}

// call runs one case against a server.
func call(args []string) error {
	flags := flag.NewFlagSet("call", flag.ContinueOnError)
	addr := flags.String("addr", "", "host:port of the server, or of what stands before it")
	authority := flags.String("authority", "", "the server's name")
	ca := flags.String("ca", "", "whom the server has to be certified by; without it, HTTP/2 in cleartext")
	if err := flags.Parse(args); err != nil {
		return err
	}
	do, ok := cases[flags.Arg(0)]
	if !ok || flags.NArg() != 1 {
		return fmt.Errorf("%q is no case", flags.Args())
	}
	creds := insecure.NewCredentials()
	if *ca != "" {
		var err error
		if creds, err = credentials.NewClientTLSFromFile(*ca, *authority); err != nil {
			return err
		}
	}
	c := caller{"passthrough:///" + *addr, []grpc.DialOption{
		grpc.WithTransportCredentials(creds), grpc.WithAuthority(*authority),
	}}
	conn, err := c.dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	do(c, conn)
	return nil
}
