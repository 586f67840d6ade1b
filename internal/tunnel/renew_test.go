// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// tokenAge is how long the tokens of these tests live, and refreshAge when a client has the next
// one.
const (
	tokenAge   = time.Hour
	refreshAge = tokenAge * 8 / 10
)

// tokenNow returns the token of now: the second at which it was made, as a kubelet does.
func tokenNow(start time.Time) string {
	age := time.Since(start)
	return strconv.FormatInt(start.Add(age-age%refreshAge).Unix(), 10)
}

// tokenExpiry returns when a token of tokenNow expires.
func tokenExpiry(token string) time.Time {
	made, err := strconv.ParseInt(token, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(made, 0).Add(tokenAge)
}

// expiries is when the session's token expires on each replica.
type expiries struct {
	mu      sync.Mutex
	until   map[string]time.Time
	renewed int
}

func (e *expiries) set(replica, token string) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.until[replica] = tokenExpiry(token)
	return e.until[replica]
}

// watch makes the replica record the tokens that it is presented.
func (e *expiries) watch(p *fakeReplica) {
	hello, join := p.handler.hello, p.handler.join
	p.handler.hello = func(ctx context.Context, h Hello) (Welcome, error) {
		e.set(p.id, h.Token)
		return hello(ctx, h)
	}
	p.handler.join = func(ctx context.Context, h Hello) (Welcome, error) {
		e.set(p.id, h.Token)
		return join(ctx, h)
	}
	p.handler.renew = func(_ context.Context, _ *Session, token string) (time.Time, error) {
		e.mu.Lock()
		e.renewed++
		e.mu.Unlock()
		return e.set(p.id, token), nil
	}
}

// TestClient_RenewsTokenOnEveryReplica checks over nine hours that no replica keeps the session with
// a token that has expired, also while a rotation retires a connection with a live stream.
func TestClient_RenewsTokenOnEveryReplica(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		e := &expiries{until: map[string]time.Time{}}
		r := newFakeReplicas(t, 4, roundRobin())
		for _, p := range r.live {
			e.watch(p)
		}
		hello := func() Hello { return Hello{Role: RoleForwarder, Token: tokenNow(start)} }
		s := r.startClient(ClientConfig{Hello: hello, RenewToken: true}).awaitSession(t)
		time.Sleep(time.Minute)
		st := open(t, s)
		for range int(9 * time.Hour / time.Second) {
			time.Sleep(time.Second)
			synctest.Wait()
			e.mu.Lock()
			for _, leg := range s.Legs() {
				if until := e.until[leg.ReplicaID]; time.Now().After(until) {
					t.Fatalf("after %s: the token on %s has expired at %s", time.Since(start), leg.ReplicaID, until)
				}
			}
			e.mu.Unlock()
		}
		if s.Err() != nil || e.renewed < 3*9 || e.renewed > 200 {
			t.Errorf("%d renewals; the session: %v", e.renewed, s.Err())
		}
		_, _ = st.Write([]byte("a"))
		b := make([]byte, 1)
		if _, err := st.Read(b); err != nil || b[0] != 'a' {
			t.Errorf("the stream: %q, %v", b, err)
		}
	})
}

// TestClient_RepeatsRefusedRenewal checks that a refusal leaves the session alone, and that the next
// attempt follows within seconds.
func TestClient_RepeatsRefusedRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		handler := newHandler()
		var tokens []string
		handler.renew = func(_ context.Context, _ *Session, token string) (time.Time, error) {
			tokens = append(tokens, token)
			if len(tokens) < 3 {
				return time.Time{}, &Error{Code: CodeUnavailable, Msg: "the store is away"}
			}
			return tokenExpiry(token), nil
		}
		h := newTestServer(t, overPipe, handler)
		hello := func() Hello { return Hello{Role: RoleAgent, Token: tokenNow(start)} }
		s := h.startClient(ClientConfig{Hello: hello, RenewToken: true}).awaitSession(t)
		time.Sleep(refreshAge + 3*renewInterval)
		synctest.Wait()
		if len(tokens) != 3 || tokens[0] != tokens[2] || s.Err() != nil {
			t.Errorf("tokens %q; the session: %v", tokens, s.Err())
		}
		time.Sleep(refreshAge - 4*renewInterval)
		synctest.Wait()
		if len(tokens) != 3 {
			t.Errorf("the same token was presented again: %q", tokens)
		}
	})
}

// TestClient_KeepsTokenFromOldServers checks that a server is sent nothing that its welcome does not
// name.
func TestClient_KeepsTokenFromOldServers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		handler := newHandler()
		handler.renew = func(context.Context, *Session, string) (time.Time, error) {
			t.Error("the server was asked")
			return time.Time{}, nil
		}
		h := newTestServer(t, overPipe, handler)
		hello := func() Hello { return Hello{Role: RoleAgent, Token: tokenNow(start)} }
		s := h.startClient(ClientConfig{Hello: hello, RenewToken: true}).awaitSession(t)
		time.Sleep(time.Second) // until all connections are there
		s.setServer("1.4.0", FeatureClusterset)
		time.Sleep(3 * refreshAge)
	})
}
