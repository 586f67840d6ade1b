// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxReplays      = 4 // at a time
	replayTimeout   = 30 * time.Second
	maxReplayAnswer = 64 << 20 // bytes of an answer that are read
	recordTimeout   = 2 * time.Second
)

// What is wrong with a replay. Errors of Replay wrap one of them, or are those of the upstream,
// which the new exchange has, too.
var (
	ErrNotFound = errors.New("is not kept any more; pick another one")
	ErrInvalid  = errors.New("cannot be replayed")
	ErrBusy     = fmt.Errorf("%d replays are running; try again when one has ended", maxReplays)
)

// hopHeaders belong to one connection: a replay makes its own.
var hopHeaders = []string{"Connection", "Content-Length", "Host", "Keep-Alive", "Proxy-Connection", "Trailer",
	"Transfer-Encoding", "Upgrade"}

// Replay sends the request of an exchange to the upstream again, directly and without the
// endpoint's policy, and returns the id of the new exchange once the answer was read. If the
// upstream does not answer, it returns an id and an error.
func (r *Recorder) Replay(ctx context.Context, id string, c Change) (newID string, err error) {
	select {
	case r.replays <- struct{}{}:
		defer func() { <-r.replays }()
	default:
		return "", fmt.Errorf("replaying: %w", ErrBusy)
	}
	original, info, err := r.replayable(id, c)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	request, err := newReplay(ctx, original, c)
	if err != nil {
		return "", err
	}
	return r.send(request, original, info)
}

// replayable returns an exchange that can be replayed with these changes.
func (r *Recorder) replayable(id string, c Change) (*Exchange, *Info, error) {
	r.refresh()
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.find(id)
	if x == nil {
		return nil, nil, fmt.Errorf("exchange %q %w", id, ErrNotFound)
	}
	e := x.exchange(true)
	why := ""
	switch {
	case x.info.Dial == nil:
		why = "its upstream is not known"
	case e.Raw || e.Request.Method == http.MethodConnect || e.Response != nil && e.Response.Status == 101:
		why = "it is not a request with an answer"
	case c.Body == nil && !x.request.ended:
		why = "its request has not been recorded to the end; wait, or give a body"
	case c.Body == nil && e.Request.Truncated:
		why = fmt.Sprintf("its body has %d bytes, of which %d are kept; give a body", e.Request.BodySize,
			len(e.Request.Body))
	}
	if why != "" {
		return nil, nil, fmt.Errorf("exchange %q %w: %s", id, ErrInvalid, why)
	}
	return e, x.info, nil
}

// newReplay returns the request, changed.
func newReplay(ctx context.Context, e *Exchange, c Change) (*http.Request, error) {
	method, target := cmp.Or(c.Method, e.Request.Method), cmp.Or(c.Path, e.Request.URL)
	body := e.Request.Body
	if c.Body != nil {
		body = c.Body
	}
	header := replayHeader(e, c)
	if where := leftMasked(e, c, header); where != "" {
		return nil,
			fmt.Errorf("the request %w: its %s holds %s, which stands for a secret: write the secret, or leave "+
				"it out for the one before", ErrInvalid, where, Masked)
	}
	u, err := url.ParseRequestURI(target)
	if err != nil || !strings.HasPrefix(target, "/") && target != "*" || strings.ContainsAny(target, " \r\n") {
		return nil, fmt.Errorf("the request %w: path %q: must be a path as in /items?page=2", ErrInvalid,
			new(masking).url(target))
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://upstream", bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("the request %w: method %q: must be a word as in GET", ErrInvalid, method)
	}
	if len(body) == 0 {
		request.Body, request.GetBody = http.NoBody, nil
	}
	u.Scheme, u.Host = "http", "upstream"
	request.URL, request.Header = u, header
	request.Host = cmp.Or(c.Header.Get("Host"), e.Request.Header.Get("Host"), "upstream")
	return request, nil
}

// leftMasked names the part of a changed request in which Masked still stands for a secret; "" =
// none.
func leftMasked(e *Exchange, c Change, h http.Header) string {
	switch {
	case strings.Contains(c.Path, Masked), strings.Contains(c.Path, url.PathEscape(Masked)):
		return "path"
	case bytes.Contains(c.Body, []byte(Masked)):
		return "body"
	}
	for name, values := range h {
		for _, v := range values {
			if strings.Contains(v, Masked) && !slices.Contains(e.Request.Header[name], v) {
				return "header " + name
			}
		}
	}
	return ""
}

// replayHeader returns the header of a replay. Masked values are those of the exchange.
func replayHeader(e *Exchange, c Change) http.Header {
	h := maps.Clone(e.Request.Header)
	if c.Header != nil {
		h = make(http.Header)
		for name, values := range c.Header {
			name = http.CanonicalHeaderKey(name)
			original := e.Request.Header[name]
			for i, v := range values {
				if strings.Contains(v, Masked) && i < len(original) {
					v = original[i]
				}
				h[name] = append(h[name], v)
			}
		}
	}
	maps.DeleteFunc(h, func(name string, _ []string) bool { return slices.Contains(hopHeaders, name) })
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = []string{""} // else there would be one of the client's
	}
	return h
}

// send sends a replay over a connection of its own, which is recorded as a caller's is.
func (r *Recorder) send(request *http.Request, original *Exchange, info *Info) (string, error) {
	copied := *info
	copied.Caller = Caller{}
	var recorded atomic.Pointer[conn]
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			upstream, err := info.Dial(ctx)
			if err != nil {
				return nil, err
			}
			c := r.newConn(copied)
			r.mu.Lock()
			c.replayOf, c.finished = original.ID, make(chan struct{})
			r.mu.Unlock()
			recorded.Store(c)
			return &replayConn{Conn: upstream, conn: c}, nil
		},
		DisableCompression: true, DisableKeepAlives: true, Protocols: new(http.Protocols),
	}
	transport.Protocols.SetHTTP1(!info.HTTP2)
	transport.Protocols.SetUnencryptedHTTP2(info.HTTP2)
	response, err := transport.RoundTrip(request)
	if err == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(response.Body, maxReplayAnswer))
		_ = response.Body.Close()
	}
	transport.CloseIdleConnections()
	if id := r.awaitRecord(recorded.Load()); id != "" {
		return id, wrapReplay(err)
	}
	return r.addFailed(request, original, &copied, err), wrapReplay(err)
}

func wrapReplay(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("replaying: %w", err)
}

// awaitRecord returns the id of the exchange that was recorded of a connection, once it has ended;
// "" if there is none.
func (r *Recorder) awaitRecord(c *conn) string {
	if c == nil {
		return ""
	}
	timeout := time.NewTimer(recordTimeout)
	defer timeout.Stop()
	select {
	case <-c.finished:
	case <-r.done:
	case <-timeout.C:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return c.firstID
}

// addFailed adds an exchange for a request that no upstream got.
func (r *Recorder) addFailed(request *http.Request, original *Exchange, info *Info, cause error) string {
	var head bytes.Buffer
	_, _ = fmt.Fprintf(&head, "%s %s HTTP/1.1\r\nHost: %s\r\n", request.Method, request.URL.RequestURI(), request.Host)
	_ = request.Header.Write(&head)
	head.WriteString("\r\n")
	at := r.now()
	r.mu.Lock()
	x := &record{info: info, start: at, replayOf: original.ID}
	r.add(x)
	x.request.head, x.request.ended = head.Bytes(), true
	x.grow(int64(head.Len()))
	text := "the upstream was not reached"
	if cause != nil {
		text += ": " + cause.Error()
	}
	x.finish(at, text)
	r.evict()
	r.mu.Unlock()
	r.changed()
	return x.id()
}

// replayConn is a connection to the upstream that records what a replay sends and gets.
type replayConn struct {
	net.Conn

	conn *conn

	mu    sync.Mutex // one producer at a time
	ended bool
}

func (c *replayConn) Write(p []byte) (int, error) {
	c.record(&c.conn.client, p)
	return c.Conn.Write(p)
}

func (c *replayConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.record(&c.conn.server, p[:n])
	return n, err
}

func (c *replayConn) Close() error {
	err := c.Conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.ended = true
		c.conn.end(nil)
	}
	return err
}

func (c *replayConn) record(f *feed, p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended && len(p) > 0 {
		c.conn.record(f, p, c.conn.recorder.now())
	}
}
