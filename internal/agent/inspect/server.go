// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// DefaultAddress is where the inspector listens; the next free port when it is taken.
	DefaultAddress  = "127.0.0.1:4040"
	portsTried      = 50
	shutdownTimeout = time.Second
)

// Listen listens at address, host:port. With next, the next free port is taken when that one is in
// use.
func Listen(ctx context.Context, address string, next bool) (net.Listener, error) {
	host, portText, err := net.SplitHostPort(address)
	port, notNumber := strconv.Atoi(portText)
	if err != nil || notNumber != nil || port < 0 || port > 65535 {
		return nil, fmt.Errorf("%q: must be HOST:PORT, e.g. %s", address, DefaultAddress)
	}
	for tries := portsTried; ; tries-- {
		ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		switch {
		case err == nil:
			return ln, nil
		case !errors.Is(err, syscall.EADDRINUSE):
			return nil, fmt.Errorf("%q: give an address of this machine, e.g. %s: %w", address, DefaultAddress, err)
		case !next:
			return nil, fmt.Errorf("%q: the port is in use; give another one", address)
		case tries == 1 || port == 65535:
			return nil, fmt.Errorf("%q: this port and the next %d are in use; give another one", address, portsTried-1)
		}
		port++
	}
}

// ServerOptions configure a Server.
type ServerOptions struct {
	Pages http.Handler // all paths but those below /api; nil = there are none
	// Host is the name of the machine that people may use in a browser's address beside IP
	// addresses and localhost; "" = none.
	Host string
}

// Server serves the pages and the JSON API of a Recorder. Other origins cannot use it.
type Server struct {
	listener net.Listener
	http     *http.Server
	stop     context.CancelFunc // ends open streams
	done     chan struct{}
}

// Serve starts a Server on ln, which it owns. Close ends it.
func Serve(ln net.Listener, r *Recorder, o ServerOptions) *Server {
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{listener: ln, stop: stop, done: make(chan struct{}), http: &http.Server{
		Handler: NewHandler(r, ln.Addr(), o), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 64 << 10, BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog: log.New(io.Discard, "", 0), // the terminal belongs to the screen
	}}
	go func() {
		defer close(s.done)
		_ = s.http.Serve(ln)
	}()
	return s
}

// URL returns where a browser on this machine finds the pages, e.g. "http://127.0.0.1:4040".
func (s *Server) URL() string {
	addr, ok := s.listener.Addr().(*net.TCPAddr)
	if !ok {
		return "http://" + s.listener.Addr().String()
	}
	host := addr.IP.String()
	switch {
	case addr.IP.IsUnspecified():
		host = "127.0.0.1"
	case addr.Zone != "":
		host += "%25" + addr.Zone
	}
	return "http://" + net.JoinHostPort(host, strconv.Itoa(addr.Port))
}

// Close ends the server and its connections.
func (s *Server) Close() {
	s.stop()
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
	<-s.done
}

// NewHandler returns what a Server at addr serves.
func NewHandler(r *Recorder, addr net.Addr, o ServerOptions) http.Handler {
	mux := http.NewServeMux()
	(&api{recorder: r}).register(mux)
	if o.Pages != nil {
		mux.Handle("/", o.Pages)
	}
	return &guard{next: http.NewCrossOriginProtection().Handler(mux), host: strings.ToLower(o.Host),
		loopbackOnly: isLoopback(addr)}
}

// guard refuses requests that a page of another origin could make a browser send. A name that
// another site resolves to this machine (DNS rebinding) is in their Host.
type guard struct {
	next         http.Handler
	host         string
	loopbackOnly bool
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	if !g.admits(r.Host) {
		http.Error(w, "The host "+strconv.Quote(r.Host)+" is not this inspector's: open it at an IP address of this "+
			"machine or at localhost.", http.StatusForbidden)
		return
	}
	// What a page of another site embeds or fetches; following a link from there is allowed.
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		if r.Method != http.MethodGet || r.Header.Get("Sec-Fetch-Mode") != "navigate" ||
			r.Header.Get("Sec-Fetch-Dest") != "document" {
			http.Error(w, "Pages of other sites cannot use the inspector.", http.StatusForbidden)
			return
		}
	}
	g.next.ServeHTTP(w, r)
}

// admits reports whether a Host header names this machine: an IP address, of the loopback if the
// server listens there only, localhost, or the configured name.
func (g *guard) admits(hostPort string) bool {
	host := strings.ToLower(hostPort)
	if h, port, err := net.SplitHostPort(host); err == nil && strings.Trim(port, "0123456789") == "" {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if ip, err := netip.ParseAddr(host); err == nil {
		return !g.loopbackOnly || ip.Unmap().IsLoopback()
	}
	return host == "localhost" || g.host != "" && host == g.host
}

func isLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}
