// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"runtime"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/version"
)

// edge keeps the session with the service's edge: as which operator, with which token, for how
// long. Its methods are safe for concurrent use.
type edge struct {
	config        tunnel.ClientConfig
	log           *slog.Logger
	authtokenFile string
	instanceID    string
	retry         time.Duration
	statusChanged func()

	mu         sync.Mutex
	client     *tunnel.Client // runs once; the next one takes its place
	renewed    chan struct{}  // closed and replaced when client is
	operatorID string
	changed    chan struct{} // closed and replaced when operatorID changes
	token      string        // the last good one
	tokenErr   error
	drainUntil time.Time // when this forwarder stops; zero while it does not
	lastErr    string
	since      time.Time     // when the session came up, or went, or its edge ceased to respond or began to again
	mute       bool          // the edge does not respond
	responds   chan struct{} // closed and replaced when mute changes
	wasUp      chan struct{} // closed once a session has been up
}

func newEdge(o *Options, retry time.Duration, statusChanged func(), told func(tunnel.RequestLine)) *edge {
	e := &edge{
		log: o.Logger, authtokenFile: o.AuthtokenFile, instanceID: o.InstanceID, retry: retry, statusChanged: statusChanged,
		since:    time.Now(),
		responds: make(chan struct{}), renewed: make(chan struct{}), changed: make(chan struct{}),
		wasUp: make(chan struct{}),
	}
	e.config = tunnel.ClientConfig{
		Address: o.EdgeAddress, TLS: o.TLS, DialContext: o.Dial, Hello: e.hello, MaxBackoff: 2 * time.Second,
		OnUp: e.up, OnDown: func(err error, _ time.Duration) { e.note(err) }, OnRequestLine: told,
		OnResponsiveness: e.responsiveness, Logger: o.Logger,
	}
	e.client = tunnel.NewClient(e.config)
	return e
}

// Wait returns a session that takes new streams and whose edge responds, as soon as there is one.
func (e *edge) Wait(ctx context.Context) (*tunnel.Session, error) {
	for {
		e.mu.Lock()
		responds := e.responds
		e.mu.Unlock()
		session, err := e.await(ctx)
		if err != nil {
			return nil, err
		}
		if _, mute := session.Unresponsive(); !mute {
			return session, nil
		}
		select {
		case <-responds:
		case <-session.Done():
		case <-session.PeerDraining():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// responsiveness notes whether the edge responds.
func (e *edge) responsiveness(s *tunnel.Session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, mute := s.Unresponsive()
	if mute == e.mute {
		return
	}
	e.mute, e.since = mute, time.Now()
	close(e.responds)
	e.responds = make(chan struct{})
	e.log.Info("the edge's responsiveness changed", "session", s.ID(), "responds", !mute)
	e.statusChanged()
}

// await returns a session that takes new streams, as soon as there is one.
func (e *edge) await(ctx context.Context) (*tunnel.Session, error) {
	for {
		client, renewed := e.current()
		session, err := client.Wait(ctx)
		if err == nil || ctx.Err() != nil {
			return session, err
		}
		select { // the edge refused this client for good
		case <-renewed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// session returns the session that is up, or nil.
func (e *edge) session() *tunnel.Session {
	client, _ := e.current()
	return client.Session()
}

func (e *edge) current() (*tunnel.Client, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.client, e.renewed
}

// renew puts a new client in the place of one that has ended.
func (e *edge) renew() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.client = tunnel.NewClient(e.config)
	close(e.renewed)
	e.renewed = make(chan struct{})
}

// run keeps a session for as long as ctx lives. What the edge refuses for good it is asked again:
// the token may be repaired at any time.
func (e *edge) run(ctx context.Context) error {
	for {
		ready, changed := e.ready()
		if ready {
			client, _ := e.current()
			if err := client.Run(ctx); err != nil {
				e.note(err)
				e.renew()
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-time.After(e.retry):
		}
	}
}

// follow notes when sessions come and go.
func (e *edge) follow(ctx context.Context) error {
	for {
		session, err := e.await(ctx)
		if err != nil {
			return nil //nolint:nilerr // ctx is done
		}
		e.turned()
		select {
		case <-session.Done():
		case <-session.PeerDraining():
		case <-ctx.Done():
			return nil
		}
		for e.session() == session { // the client takes note a moment later
			if !sleep(ctx, time.Millisecond) {
				return nil
			}
		}
		e.turned()
	}
}

func (e *edge) turned() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.since = time.Now()
	e.statusChanged()
}

// ready says whether there is an operator id and a token to come with.
func (e *edge) ready() (bool, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.readToken()
	switch {
	case e.operatorID == "":
		e.setErr("waiting for the installation to be registered: its KubernetesOperator has no operator id yet")
	case e.token == "":
		e.setErr(e.tokenErr.Error())
	}
	return e.operatorID != "" && e.token != "", e.changed
}

// readToken reads the file anew. While it is being replaced, or gone, the last good token remains.
func (e *edge) readToken() {
	text, err := os.ReadFile(e.authtokenFile)
	token := string(bytes.TrimSpace(text))
	switch {
	case err != nil:
		e.tokenErr = fmt.Errorf("reading authtoken: %w", err)
	case token == "":
		e.tokenErr = fmt.Errorf("authtoken file %s is empty", e.authtokenFile)
	default:
		e.token, e.tokenErr = token, nil
	}
}

func (e *edge) hello() tunnel.Hello {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.readToken()
	return tunnel.Hello{
		Role: tunnel.RoleForwarder, Token: e.token, ClientVersion: version.String(), OS: runtime.GOOS,
		InstanceID: e.instanceID, OperatorID: e.operatorID,
	}
}

func (e *edge) up(_ context.Context, s *tunnel.Session) error {
	e.mu.Lock()
	e.lastErr, e.mute = "", false
	select {
	case <-e.wasUp:
	default:
		close(e.wasUp)
	}
	operator, until := e.operatorID, e.drainUntil
	e.mu.Unlock()
	e.log.Info("connected to the edge", "session", s.ID(), "operator", operator)
	if until.IsZero() {
		return nil
	}
	return s.Drain(time.Until(until))
}

// setOperatorID says as which operator to speak. A session under another id is ended; the client
// comes back with the new one.
func (e *edge) setOperatorID(id string) {
	e.mu.Lock()
	if id == "" || id == e.operatorID {
		e.mu.Unlock()
		return
	}
	old := e.operatorID
	e.operatorID = id
	e.statusChanged()
	close(e.changed)
	e.changed = make(chan struct{})
	e.mu.Unlock()
	if s := e.session(); old != "" && s != nil {
		e.log.Info("the operator's id changed", "from", old, "to", id)
		_ = s.Close()
	}
}

// drain tells the edge, and every later session, that this forwarder stops within d: responses end
// their connections, while new ones are still taken.
func (e *edge) drain(d time.Duration) {
	e.mu.Lock()
	e.drainUntil = time.Now().Add(d)
	e.mu.Unlock()
	if s := e.session(); s != nil {
		if err := s.Drain(d); err != nil {
			e.note(err)
		}
	}
}

// note remembers why there is no session, and logs it when it is news.
func (e *edge) note(err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.setErr(ownAddress.ReplaceAllString(err.Error(), "$1 "))
}

// ownAddress is the address of our end in the text of a connection's error: its port differs from
// try to try, and equal causes shall give equal texts.
var ownAddress = regexp.MustCompile(`\b((?:read|write) tcp\S*) \S+->`)

func (e *edge) setErr(text string) {
	if text != e.lastErr {
		e.log.Warn("no session with the edge", "error", text)
		e.statusChanged()
	}
	e.lastErr = text
}

// SessionStatus is the way to the edge as /status shows it.
type SessionStatus struct {
	Up         bool      `json:"up"`
	Since      time.Time `json:"since"`   // when it came up, or went
	Address    string    `json:"address"` // of the edge
	ID         string    `json:"id,omitempty"`
	OperatorID string    `json:"operator_id,omitempty"`
	AccountID  string    `json:"account_id,omitempty"`
	Error      string    `json:"error,omitempty"` // why it is not up
}

func (e *edge) status() SessionStatus {
	session := e.session()
	e.mu.Lock()
	defer e.mu.Unlock()
	st := SessionStatus{Up: session != nil, Since: e.since.UTC().Truncate(time.Millisecond), Address: e.config.Address,
		OperatorID: e.operatorID, Error: e.lastErr}
	if session != nil {
		st.ID, st.AccountID, st.Error = session.ID(), session.Welcome().AccountID, ""
		if _, mute := session.Unresponsive(); mute {
			st.Up, st.Error = false, "the edge does not respond"
		}
	}
	return st
}
