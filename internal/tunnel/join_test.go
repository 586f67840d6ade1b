// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// rawDialer returns a Client that only dials single connections.
func (h *testServer) rawDialer() *Client {
	return NewClient(ClientConfig{Address: testAddress, TLS: clientTrust(), DialContext: h.dial})
}

// admit is a Join that admits every connection to the session that it names.
func admit(_ context.Context, h Hello) (Welcome, error) {
	return Welcome{SessionID: h.SessionID, AccountID: "acc_1", ReplicaID: "rp_2"}, nil
}

func joining(secret string) Hello {
	return Hello{Role: RoleAgent, Token: "flt_x", SessionID: "ts_elsewhere", JoinSecret: secret}
}

// dialRaw opens a connection that is closed at the end of the test, on the client's side only.
func (h *testServer) dialRaw(t *testing.T, hello Hello) (*link, *Welcome, error) {
	t.Helper()
	l, welcome, err := h.rawDialer().dial(t.Context(), testAddress, hello)
	if err == nil {
		t.Cleanup(func() { l.close(errors.New("the test is over")) })
	}
	return l, welcome, err
}

func TestServer_JoinBeginsSessionOfAnotherReplica(t *testing.T) {
	t.Parallel()
	handler := newHandler()
	var asked atomic.Int32
	handler.join = func(ctx context.Context, h Hello) (Welcome, error) {
		asked.Add(1)
		return admit(ctx, h)
	}
	h := newTestServer(t, overTCP, handler)
	l, welcome, err := h.dialRaw(t, joining("secret"))
	if err != nil {
		t.Fatal(err)
	}
	want := &Welcome{SessionID: "ts_elsewhere", AccountID: "acc_1", ReplicaID: "rp_2", Features: serverFeatures()}
	if d := cmp.Diff(want, welcome); d != "" {
		t.Error(d)
	}
	s := wait.Receive(t, "Up", handler.ups)
	hash := sha256.Sum256([]byte("secret"))
	if !bytes.Equal(s.JoinHash(), hash[:]) || s.ID() != "ts_elsewhere" || s.Role() != RoleAgent {
		t.Errorf("session %s, role %s, join hash %x", s.ID(), s.Role(), s.JoinHash())
	}
	if d := cmp.Diff(Hello{Role: RoleAgent, SessionID: "ts_elsewhere"}, s.Hello()); d != "" {
		t.Errorf("hello without its secrets: %s", d)
	}
	if _, _, err := h.dialRaw(t, joining("secret")); err != nil {
		t.Errorf("a further connection: %v", err)
	}
	awaitConnections(t, 2, s)
	var refused *Error
	if _, _, err := h.dialRaw(t, joining("guessed")); !errors.As(err, &refused) || refused.Code != CodeUnknownSession {
		t.Errorf("another secret: %v", err)
	}
	if err := s.Drain(time.Second); err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.dialRaw(t, joining("secret")); !errors.As(err, &refused) || refused.Code != CodeDraining {
		t.Errorf("a further connection while the server drains: %v", err)
	}
	if asked.Load() != 1 {
		t.Errorf("the handler was asked %d times", asked.Load())
	}
	l.close(errors.New("enough"))
	h.stop()
	wait.Receive(t, "Down", handler.downs)
}

func TestServer_JoinRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		join func(context.Context, Hello) (Welcome, error)
		code Code
	}{
		"not replicated": {nil, CodeUnknownSession},
		"draining": {func(context.Context, Hello) (Welcome, error) {
			return Welcome{}, &Error{Code: CodeDraining, Msg: "soon"}
		}, CodeDraining},
		"another session": {func(context.Context, Hello) (Welcome, error) {
			return Welcome{SessionID: "ts_other"}, nil
		}, CodeInternal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handler := newHandler()
			handler.join = c.join
			h := newTestServer(t, overPipe, handler)
			var refused *Error
			if _, _, err := h.dialRaw(t, joining("secret")); !errors.As(err, &refused) || refused.Code != c.code {
				t.Errorf("error %v, want %s", err, c.code)
			}
			if len(handler.ups) != 0 || len(h.server.Sessions()) != 0 {
				t.Error("a session began")
			}
		})
	}
}

func TestServer_ConcurrentJoinsAreOneSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		handler := newHandler()
		var asked atomic.Int32
		handler.join = func(ctx context.Context, h Hello) (Welcome, error) {
			asked.Add(1)
			time.Sleep(time.Second)
			return admit(ctx, h)
		}
		h := newTestServer(t, overPipe, handler)
		var dials sync.WaitGroup
		for range 4 {
			dials.Go(func() {
				if _, _, err := h.dialRaw(t, joining("secret")); err != nil {
					t.Error(err)
				}
			})
		}
		dials.Wait()
		s := <-handler.ups
		if asked.Load() != 1 || len(handler.ups) != 0 || openLinks(s) != 4 {
			t.Errorf("the handler was asked %d times, and %d more sessions began; this one has %d connections",
				asked.Load(), len(handler.ups), openLinks(s))
		}
	})
}

// slowDownHandler takes a second to record the end of a session.
type slowDownHandler struct{ *testHandler }

func (h slowDownHandler) Down(s *Session, err error) {
	time.Sleep(time.Second)
	h.testHandler.Down(s, err)
}

// TestServer_JoinFollowsDown checks that a session that returns is not joined before the end of its
// predecessor is recorded: the record would end it.
func TestServer_JoinFollowsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		handler := newHandler()
		handler.join = func(ctx context.Context, h Hello) (Welcome, error) {
			if len(handler.ups) != len(handler.downs) {
				t.Error("Join before Down of the session before")
			}
			return admit(ctx, h)
		}
		h := newTestServer(t, overPipe, handler)
		h.server.cfg.Handler = slowDownHandler{handler}
		for range 3 {
			l, _, err := h.dialRaw(t, joining("secret"))
			if err != nil {
				t.Fatal(err)
			}
			l.close(errors.New("enough"))
		}
		synctest.Wait()
	})
}

func TestServer_SetReplicas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newTestServer(t, overPipe, newHandler())
		newer, welcome, err := h.dialRaw(t, Hello{Role: RoleAgent, Features: []Feature{FeatureReplicas}})
		if err != nil || welcome.Replicas != 0 {
			t.Fatalf("welcome %+v, %v", welcome, err)
		}
		older, _, err := h.dialRaw(t, Hello{Role: RoleAgent})
		if err != nil {
			t.Fatal(err)
		}
		h.server.SetReplicas(3)
		h.server.SetReplicas(2)
		synctest.Wait()
		if got := drainControl(newer); len(got) == 0 || got[len(got)-1] != "replicas 2" {
			t.Errorf("the client was told %q", got)
		}
		if got := drainControl(older); len(got) != 0 {
			t.Errorf("an older client was told %q", got)
		}
		if _, welcome, err := h.dialRaw(t, Hello{Role: RoleAgent}); err != nil || welcome.Replicas != 2 {
			t.Errorf("a later welcome: %+v, %v", welcome, err)
		}
	})
}

// drainControl returns the messages that wait in a control stream.
func drainControl(l *link) []string {
	var all []string
	for l.ctrl.st.Buffered() > 0 {
		b, err := l.ctrl.receive(messageLimit)
		if err != nil {
			return append(all, err.Error())
		}
		m, err := parseMessage(b)
		if err != nil {
			return append(all, err.Error())
		}
		all = append(all, fmt.Sprint(m.Type, " ", m.Replicas))
	}
	return all
}
