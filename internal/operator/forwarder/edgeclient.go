// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"runtime"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/operator/serviceaccounttoken"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/version"
)

// edgeClient maintains the session with the service's edge. Its methods are safe for concurrent
// use.
type edgeClient struct {
	config        tunnel.ClientConfig
	log           *slog.Logger
	credential    serviceaccounttoken.Credential // the authtoken or ServiceAccount token
	instanceID    string
	retry         time.Duration
	statusChanged *broadcaster

	mu                    sync.Mutex
	client                *tunnel.Client // client runs once; replaceClient replaces it.
	clientReplaced        broadcaster
	operatorID            string
	operatorChanged       broadcaster
	token                 string // last valid token
	tokenErr              error
	drainUntil            time.Time // time when this forwarder stops; zero while it does not
	lastErr               string
	refused               bool      // refused reports that lastErr is the service's final refusal.
	since                 time.Time // time when the session was established or lost, or its responsiveness changed
	unresponsive          bool      // unresponsive reports that the edge does not respond.
	responsivenessChanged broadcaster
	connectedOnce         chan struct{} // connectedOnce is closed by the first session.
	legs                  sessionLegs
}

func newEdgeClient(
	o *Options, retry time.Duration, statusChanged *broadcaster, onRequestLine func(tunnel.RequestLine),
) *edgeClient {
	e := &edgeClient{
		log: o.Logger, instanceID: o.InstanceID, retry: retry, statusChanged: statusChanged,
		credential: serviceaccounttoken.NewCredential(o.ServiceAccountTokenFile, o.AuthtokenFile, o.Logger),
		since:      time.Now(), connectedOnce: make(chan struct{}), lastErr: "the cluster's objects are not read yet",
	}
	e.config = tunnel.ClientConfig{
		Address: o.EdgeAddress, TLS: o.TLS, DialContext: o.Dial, Hello: e.hello, MaxBackoff: 2 * time.Second,
		OnUp: e.onUp, OnDown: func(err error, _ time.Duration) { e.recordError(err) }, OnRequestLine: onRequestLine,
		OnResponsiveness: e.updateResponsiveness, MaxLegs: maxLegs, OnLegs: e.updateLegs, Logger: o.Logger,
		RenewToken: o.ServiceAccountTokenFile != "", Authorities: o.Authorities, PairBudget: tunnel.NewPairBudget(),
	}
	e.client = tunnel.NewClient(e.config)
	return e
}

// Session implements forward.Sessions: it waits for a session whose edge responds.
func (e *edgeClient) Session(ctx context.Context) (*tunnel.Session, error) {
	for {
		changed := e.responsivenessChanged.next()
		session, err := e.connectedSession(ctx)
		if err != nil {
			return nil, err
		}
		if _, unresponsive := session.Unresponsive(); !unresponsive {
			return session, nil
		}
		select {
		case <-changed:
		case <-session.Done():
		case <-session.PeerDraining():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// updateResponsiveness records whether the edge responds.
func (e *edgeClient) updateResponsiveness(s *tunnel.Session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, unresponsive := s.Unresponsive()
	if unresponsive == e.unresponsive {
		return
	}
	e.unresponsive, e.since = unresponsive, time.Now()
	e.responsivenessChanged.broadcast()
	e.log.Info("the edge's responsiveness changed", "session", s.ID(), "responds", !unresponsive)
	e.statusChanged.broadcast()
}

// connectedSession waits for a session that accepts streams.
func (e *edgeClient) connectedSession(ctx context.Context) (*tunnel.Session, error) {
	for {
		client, replaced := e.currentClient()
		session, err := client.Wait(ctx)
		if err == nil || ctx.Err() != nil {
			return session, err
		}
		select { // the edge refused this client permanently
		case <-replaced:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Live returns the established session, or nil.
func (e *edgeClient) Live() *tunnel.Session {
	client, _ := e.currentClient()
	return client.Session()
}

// sealedPaths returns what carries the sealed streams.
func (e *edgeClient) sealedPaths() tunnel.SealedPaths {
	return e.config.PairBudget.SealedPaths(e.Live())
}

// currentClient returns the client and a channel that is closed when it is replaced.
func (e *edgeClient) currentClient() (*tunnel.Client, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.client, e.clientReplaced.next()
}

// replaceClient replaces a client that has ended.
func (e *edgeClient) replaceClient() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.client = tunnel.NewClient(e.config)
	e.clientReplaced.broadcast()
}

// run maintains a session until ctx is done. It retries permanent refusals too, as the token may be
// replaced at any time.
func (e *edgeClient) run(ctx context.Context) error {
	for {
		canConnect, changed := e.canConnect()
		if canConnect {
			client, _ := e.currentClient()
			if err := client.Run(ctx); err != nil {
				e.recordError(err)
				e.replaceClient()
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

// trackSessions records when sessions are established and lost.
func (e *edgeClient) trackSessions(ctx context.Context) error {
	for {
		session, err := e.connectedSession(ctx)
		if err != nil {
			return nil //nolint:nilerr // ctx is done
		}
		e.recordTransition()
		select {
		case <-session.Done():
		case <-session.PeerDraining():
		case <-ctx.Done():
			return nil
		}
		for e.Live() == session { // the client notices it shortly afterwards
			if !timer.Sleep(ctx, time.Millisecond) {
				return nil
			}
		}
		e.recordTransition()
	}
}

// recordTransition records that a session was established or lost.
func (e *edgeClient) recordTransition() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.since = time.Now()
	e.statusChanged.broadcast()
}

// canConnect reports whether there are an operator id and a token. The channel is closed when the
// operator id changes.
func (e *edgeClient) canConnect() (bool, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.readToken()
	switch {
	case e.operatorID == "":
		e.setError("waiting for the installation to be registered: its KubernetesOperator has no operator id yet")
	case e.token == "":
		e.setError(e.tokenErr.Error())
	}
	return e.operatorID != "" && e.token != "", e.operatorChanged.next()
}

// readToken reads the token file. If that fails, the last valid token remains. mu must be held.
func (e *edgeClient) readToken() {
	token, err := e.credential.Read()
	e.tokenErr = err
	if err == nil {
		e.token = token
	}
}

func (e *edgeClient) hello() tunnel.Hello {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.readToken()
	return tunnel.Hello{
		Role: tunnel.RoleForwarder, Token: e.token, ClientVersion: version.String(), OS: runtime.GOOS,
		InstanceID: e.instanceID, OperatorID: e.operatorID,
	}
}

func (e *edgeClient) onUp(_ context.Context, s *tunnel.Session) error {
	e.mu.Lock()
	e.lastErr, e.refused, e.unresponsive = "", false, false
	select {
	case <-e.connectedOnce:
	default:
		close(e.connectedOnce)
	}
	operator, until := e.operatorID, e.drainUntil
	e.mu.Unlock()
	e.log.Info("connected to the edge", "session", s.ID(), "operator", operator)
	e.trackLegs(s)
	if until.IsZero() {
		return nil
	}
	return s.Drain(time.Until(until))
}

// setOperatorID sets the operator id of the session. A session with another id is closed; the
// client reconnects with the new one.
func (e *edgeClient) setOperatorID(id string) {
	e.mu.Lock()
	if id == "" || id == e.operatorID {
		e.mu.Unlock()
		return
	}
	old := e.operatorID
	e.operatorID = id
	e.statusChanged.broadcast()
	e.operatorChanged.broadcast()
	e.mu.Unlock()
	if s := e.Live(); old != "" && s != nil {
		e.log.Info("the operator's id changed", "from", old, "to", id)
		_ = s.Close()
	}
}

// drain announces to the edge, also in later sessions, that this forwarder stops within d:
// responses then close their connections, while new connections are still accepted.
func (e *edgeClient) drain(d time.Duration) {
	e.mu.Lock()
	e.drainUntil = time.Now().Add(d)
	e.mu.Unlock()
	if s := e.Live(); s != nil {
		if err := s.Drain(d); err != nil {
			e.recordError(err)
		}
	}
}

// recordError records why there is no session, and logs it if it changed.
func (e *edgeClient) recordError(err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.setError(localAddress.ReplaceAllString(err.Error(), "$1 "))
	var refusal *tunnel.Error
	e.refused = errors.As(err, &refusal) && refusal.Code.Final()
}

// refusal returns why the service refuses this forwarder; "" if it does not, or does not answer.
func (e *edgeClient) refusal() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.refused {
		return ""
	}
	return e.lastErr
}

// localAddress matches our end's address in the text of a connection's error: its port differs
// between attempts, and equal causes must give equal texts.
var localAddress = regexp.MustCompile(`\b((?:read|write) tcp\S*) \S+->`)

// setError sets the text of the last error. mu must be held.
func (e *edgeClient) setError(text string) {
	if text != e.lastErr {
		e.log.Warn("no session with the edge", "error", text)
		e.statusChanged.broadcast()
	}
	e.lastErr, e.refused = text, false
}
