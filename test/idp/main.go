// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Command idp runs real identity providers for tests: Dex and zitadel's example provider (OpenID
// Connect), and crewjam's samlidp (SAML), each on a host name below localhost, since two ports of
// one address are the same site to a browser. It owns its providers, which are in memory, and a
// control API over plain HTTP (control.go). It is a module of its own, so that what it needs is no
// dependency of the product. What comes in: browsers and the edge under test. It hands over to
// no other package.
//
// One line of JSON on standard output has the addresses of all parts. The program ends when its
// standard input does.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "where the identity providers listen")
	control := flag.String("control", "127.0.0.1:0", "where the control API listens")
	verbose := flag.Bool("verbose", false, "log what the providers log, on standard error")
	flag.Parse()
	out := io.Discard
	if *verbose {
		out = os.Stderr
	}
	if err := run(*listen, *control,
		slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug}))); err != nil {
		fmt.Fprintln(os.Stderr, "idp:", err)
		os.Exit(1)
	}
}

// run serves until standard input ends.
func run(listen, control string, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var lc net.ListenConfig
	providers, err := lc.Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	controls, err := lc.Listen(ctx, "tcp", control)
	if err != nil {
		return err
	}
	out := &edgeTransport{}
	http.DefaultTransport = out.transport() // Dex sends its logout tokens with it
	h := &host{ctx: ctx, log: log, port: providers.Addr().(*net.TCPAddr).Port, slots: map[string]*providerSlot{}}
	ready := map[string]any{"control": "http://" + controls.Addr().String()}
	described := map[string]description{}
	for _, kind := range []string{"dex", "op", "saml"} {
		if described[kind], err = h.add(kind, kind); err != nil {
			return fmt.Errorf("starting %s: %w", kind, err)
		}
	}
	ready["providers"] = described
	failed := make(chan error, 2)
	go func() { failed <- serve(providers, h) }()
	go func() { failed <- serve(controls, controlAPI(h, out)) }()
	if err := json.NewEncoder(os.Stdout).Encode(ready); err != nil {
		return err
	}
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		failed <- err
	}()
	return <-failed
}

func serve(l net.Listener, h http.Handler) error {
	return (&http.Server{Handler: h, ReadHeaderTimeout: time.Minute}).Serve(l)
}
