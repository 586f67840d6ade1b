// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"syscall"
	"time"
)

// loader asks URLs in turn at a steady rate and never asks twice for one answer: what fails is
// counted as failed.
type loader struct {
	keep, verbose bool
	timeout       time.Duration
	targets       []*target
	out           io.Writer

	mu    sync.Mutex
	total tally
}

// tally is what load prints in the end.
type tally struct {
	OK        int           `json:"ok"`
	Failed    int           `json:"failed"`
	Dialled   int           `json:"dialled"`    // connections
	IdleBroke int           `json:"idle_broke"` // idle connections that ended with a reset, and not with an end
	Slowest   time.Duration `json:"slowest"`    // nanoseconds, of all requests
}

// target is one URL with the connections that wait for the next request, the latest last.
type target struct {
	url  *url.URL
	addr string
	idle []*net.TCPConn
}

// load asks until stdin ends, or for a time. Each failure is a line "FAIL UNIX-NANOSECONDS URL
// DURATION REASON" with the time of its end; with -v each success is one with OK. The last line is
// the tally as JSON.
func load(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("load", flag.ExitOnError)
	rate := flags.Float64("rate", 1, "requests a second, of all URLs together")
	forTime := flags.Duration("for", 0, "how long; 0 means until stdin ends")
	l := &loader{out: os.Stdout}
	flags.BoolVar(&l.keep, "keep", false, "keep connections for the next request")
	flags.BoolVar(&l.verbose, "v", false, "print successes too")
	flags.DurationVar(&l.timeout, "timeout", 10*time.Second, "of a request")
	if err := flags.Parse(args); err != nil {
		return err
	}
	for _, arg := range flags.Args() {
		u, err := url.Parse(arg)
		if err != nil || u.Hostname() == "" || *rate <= 0 {
			return fmt.Errorf("%q: want URLs http://HOST[:PORT]/ or tcp://HOST:PORT, and a -rate above 0", arg)
		}
		l.targets = append(l.targets, &target{url: u, addr: net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "80"))})
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if *forTime > 0 {
		time.AfterFunc(*forTime, cancel)
	} else {
		go func() { _, _ = io.Copy(io.Discard, os.Stdin); cancel() }()
	}
	return l.run(ctx, time.Duration(float64(time.Second) / *rate))
}

// run begins a request at every tick until ctx is done, and waits for those under way.
func (l *loader) run(ctx context.Context, every time.Duration) error {
	fmt.Fprintln(l.out, "loading")
	tick := time.NewTicker(every)
	defer tick.Stop()
	var asking sync.WaitGroup
	for i := 0; ctx.Err() == nil; i++ {
		t := l.targets[i%len(l.targets)]
		asking.Go(func() { l.one(context.WithoutCancel(ctx), t) })
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	asking.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return json.NewEncoder(l.out).Encode(l.total)
}

// one asks once and counts.
func (l *loader) one(ctx context.Context, t *target) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	began := time.Now()
	err := l.ask(ctx, t)
	took := time.Since(began)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total.Slowest = max(l.total.Slowest, took)
	switch {
	case err != nil:
		l.total.Failed++
		fmt.Fprintf(l.out, "FAIL %d %s %v %v\n", time.Now().UnixNano(), t.url, took.Round(100*time.Microsecond), err)
	default:
		l.total.OK++
		if l.verbose {
			fmt.Fprintf(l.out, "OK %d %s %v\n", time.Now().UnixNano(), t.url, took.Round(100*time.Microsecond))
		}
	}
}

func (l *loader) ask(ctx context.Context, t *target) error {
	c, err := l.connect(ctx, t)
	if err != nil {
		return err
	}
	deadline, _ := ctx.Deadline()
	_ = c.SetDeadline(deadline)
	again := false
	if t.url.Scheme == "tcp" {
		err = askEcho(c)
	} else {
		again, err = askHTTP(c, t.url, l.keep)
	}
	if err != nil || !again {
		_ = c.Close()
		return err
	}
	_ = c.SetDeadline(time.Time{}) // it was this request's
	l.mu.Lock()
	defer l.mu.Unlock()
	t.idle = append(t.idle, c)
	return nil
}

// connect takes the latest idle connection that its server has not ended, or makes one.
func (l *loader) connect(ctx context.Context, t *target) (*net.TCPConn, error) {
	for {
		c := l.takeIdle(t)
		if c == nil {
			break
		}
		err := stillOpen(c)
		if err == nil {
			return c, nil
		}
		_ = c.Close() // nothing was asked on it: the end of an idle connection costs no request
		if !errors.Is(err, io.EOF) {
			l.mu.Lock()
			l.total.IdleBroke++
			l.mu.Unlock()
		}
	}
	l.mu.Lock()
	l.total.Dialled++
	l.mu.Unlock()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.addr)
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

func (l *loader) takeIdle(t *target) *net.TCPConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(t.idle) == 0 {
		return nil
	}
	c := t.idle[len(t.idle)-1]
	t.idle = t.idle[:len(t.idle)-1]
	return c
}

// stillOpen looks at an idle connection without waiting: io.EOF when the server has ended it, as
// every client looks before it asks again.
func stillOpen(c *net.TCPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var n int
	var readErr error
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		n, readErr = syscall.Read(int(fd), b[:])
		return true
	})
	switch {
	case err != nil:
		return err
	case readErr == syscall.EAGAIN:
		return nil
	case readErr != nil:
		return readErr
	case n > 0:
		return fmt.Errorf("it holds bytes that no request asked for")
	}
	return io.EOF
}

func askHTTP(c net.Conn, u *url.URL, keep bool) (again bool, err error) {
	req := &http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: http.Header{}, Close: !keep}
	if err := req.Write(c); err != nil {
		return false, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), req)
	if err != nil {
		return false, err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return false, fmt.Errorf("reading the body: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return false, fmt.Errorf("status %s %s", resp.Status, resp.Header.Get("Fairlead-Error-Code"))
	}
	return keep && !resp.Close, nil
}

// askEcho sends a line and wants it back.
func askEcho(c net.Conn) error {
	const line = "echo\n"
	if _, err := io.WriteString(c, line); err != nil {
		return err
	}
	got := make([]byte, len(line))
	if n, err := io.ReadFull(c, got); err != nil {
		return fmt.Errorf("after %d bytes: %w", n, err)
	}
	return nil
}
