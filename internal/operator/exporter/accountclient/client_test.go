// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package accountclient_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/accountclient"
)

// service answers reads of endpoints.
type service struct {
	accountclient.API // nil: nothing else is called

	answer func(ctx context.Context, id string) error
	calls  int
}

func (s *service) Endpoint(ctx context.Context, id string) (*account.Endpoint, error) {
	s.calls++
	if s.answer == nil {
		return &account.Endpoint{ID: id}, nil
	}
	return &account.Endpoint{ID: id}, s.answer(ctx, id)
}

// TestClient_BoundsRate checks that 1,000 objects take at most 15 s, that the service, which admits
// 100 calls a second, could serve two of them, and that one which admits fewer is soon asked for no
// more.
func TestClient_BoundsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		c := accountclient.New(s)
		began := time.Now()
		for range 1000 {
			if _, err := c.Endpoint(t.Context(), "ep-1"); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took < 10*time.Second || took > 14*time.Second {
			t.Errorf("1,000 calls took %v, want 70 a second after 100 at once", took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		bucket, refused := rate.NewLimiter(50, 100), 0
		s := &service{answer: func(context.Context, string) error {
			if bucket.Allow() {
				return nil
			}
			refused++
			return account.Errorf(account.CodeTooMany, "slow down")
		}}
		c := accountclient.New(s)
		for done, began := 0, time.Now(); done < 1000; {
			if _, err := c.Endpoint(t.Context(), "ep-1"); err == nil {
				done++
			} else {
				time.Sleep(100 * time.Millisecond)
			}
			if took := time.Since(began); took > 40*time.Second {
				t.Fatalf("%d calls in %v", done, took)
			}
		}
		if refused != 1 {
			t.Errorf("%d calls were refused, want 1", refused)
		}
	})
}

// TestClient_PausesWhileServiceIsAway checks that a service that hangs costs one time-out and not
// one for each object.
func TestClient_PausesWhileServiceIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{answer: func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return &account.Error{Code: account.CodeUnreachable, Msg: "the service does not answer"}
		}}
		c := accountclient.New(s)
		began := time.Now()
		for range 100 {
			if _, err := c.Endpoint(t.Context(), "ep-1"); account.CodeOf(err) != account.CodeUnreachable {
				t.Fatal(err)
			}
		}
		if s.calls != 1 || time.Since(began) != 10*time.Second {
			t.Errorf("100 objects: %d calls in %s, want one of 10 s", s.calls, time.Since(began))
		}
		s.answer = nil
		time.Sleep(2 * time.Second)
		if _, err := c.Endpoint(t.Context(), "ep-1"); err != nil {
			t.Errorf("after the service came back: %v", err)
		}
	})
}

// TestClient_OneRefusalPausesNothing checks that an endpoint that the service, or what filters
// requests before it, refuses does not stop the others.
func TestClient_OneRefusalPausesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, code := range []account.Code{account.CodeInvalid, account.CodeScope, account.CodeURLTaken,
			account.CodeInternal, account.CodeBadAnswer, account.CodeNotFound} {
			s := &service{answer: func(_ context.Context, id string) error {
				if id == "ep-odd" {
					return &account.Error{Code: code, Msg: "refused"}
				}
				return nil
			}}
			c := accountclient.New(s)
			_, _ = c.Endpoint(t.Context(), "ep-odd")
			if _, err := c.Endpoint(t.Context(), "ep-2"); err != nil {
				t.Errorf("after %s of another endpoint: %v", code, err)
			}
		}
	})
}

func TestClient_HonoursRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{answer: func(context.Context, string) error {
			return &account.Error{Code: account.CodeTooMany, Details: map[string]string{"retry_after": "30"}}
		}}
		c := accountclient.New(s)
		_, _ = c.Endpoint(t.Context(), "ep-1")
		s.answer = nil
		time.Sleep(29 * time.Second)
		if _, err := c.Endpoint(t.Context(), "ep-1"); account.CodeOf(err) != account.CodeTooMany || s.calls != 1 {
			t.Errorf("after 29 s: %v, %d calls", err, s.calls)
		}
		time.Sleep(time.Second)
		if _, err := c.Endpoint(t.Context(), "ep-1"); err != nil {
			t.Errorf("after 30 s: %v", err)
		}
	})
}

func TestUnanswered_SortsErrors(t *testing.T) {
	t.Parallel()
	for code, want := range map[account.Code]bool{
		account.CodeUnreachable: true, account.CodeBadAnswer: true, account.CodeUnavailable: true,
		account.CodeTooMany: true, account.CodeInternal: true, account.CodeInvalid: false, account.CodeScope: false,
		account.CodeURLTaken: false, account.CodeNotFound: false, account.CodeUnknownCredential: false,
	} {
		if got := accountclient.Unanswered(&account.Error{Code: code}); got != want {
			t.Errorf("%s: %t", code, got)
		}
	}
	if !accountclient.Unanswered(context.DeadlineExceeded) || accountclient.Unanswered(nil) {
		t.Error("a deadline is not unanswered, or success is")
	}
}
