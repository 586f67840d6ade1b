// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package httpkit

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// newTestCall returns a call, its recorded answer, and a handler that logs into log.
func newTestCall(method, path, body string) (c *Call, w *httptest.ResponseRecorder, h *Handler, log *bytes.Buffer) {
	w, log = httptest.NewRecorder(), &bytes.Buffer{}
	call := NewCall(w, httptest.NewRequest(method, path, strings.NewReader(body)), time.Now())
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return &call, w, &Handler{Name: "test request", Logger: logger}, log
}

// answers is a Meter that lists statuses and codes.
type answers struct {
	Meter
	counted *[]any
}

func (a answers) CountAnswer(status int, code account.Code) {
	*a.counted = append(*a.counted, status, code)
}

func TestHandler_RunAnswersAndLogs(t *testing.T) {
	t.Parallel()
	refusal := account.Errorf(account.CodeNotFound, "no object")
	for name, c := range map[string]struct {
		method string
		status int // that handle writes; 0 = none
		err    error
		answer int
		level  string
	}{
		"read":                   {"GET", 200, nil, 200, "DEBUG"},
		"change":                 {"POST", 204, nil, 204, "INFO"},
		"refusal":                {"GET", 0, refusal, 404, "INFO"},
		"failure":                {"GET", 0, errors.New("disk"), 500, "ERROR"},
		"failure after the head": {"GET", 200, errors.New("disk"), 200, "ERROR"},
		"client is gone":         {"GET", 200, ClientGoneError{io.ErrClosedPipe}, 200, "DEBUG"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call, w, h, log := newTestCall(c.method, "/objects/fld_secret?token=x", "")
			call.Key = &account.APIKey{ID: "ak-1", AccountID: "ac-1"}
			var counted []any
			h.Meter = answers{counted: &counted}
			h.Run(call, "/objects/{id}", func() error {
				if c.status != 0 {
					call.Writer.WriteHeader(c.status)
				}
				return c.err
			}, func(err error) { call.Writer.WriteHeader(account.CodeOf(err).Status()) })
			if w.Code != c.answer {
				t.Errorf("answered %d, want %d", w.Code, c.answer)
			}
			code := account.Code("")
			if c.answer >= 400 {
				code = account.CodeOf(c.err)
			}
			if !slices.Equal(counted, []any{c.answer, code}) {
				t.Errorf("counted %v, want %d and %q once", counted, c.answer, code)
			}
			line := log.String()
			for _, want := range []string{"level=" + c.level, `msg="test request"`, "operation_id=" + call.OperationID,
				"route=/objects/{id}", "path=/objects/(secret)", "account=ac-1", "key=ak-1"} {
				if !strings.Contains(line, want) {
					t.Errorf("the log lacks %s: %s", want, line)
				}
			}
			if strings.Contains(line, "token") || strings.Contains(line, "disk") != (c.level == "ERROR") {
				t.Errorf("the log has a query, or not the cause of a failure alone: %s", line)
			}
		})
	}
}

func TestHandler_RunRecoversPanics(t *testing.T) {
	t.Parallel()
	call, w, h, log := newTestCall("GET", "/", "")
	writeError := func(error) { call.Writer.WriteHeader(http.StatusInternalServerError) }
	h.Run(call, "/", func() error { panic("broken") }, writeError)
	if w.Code != http.StatusInternalServerError || !strings.Contains(log.String(), "panic: broken") {
		t.Errorf("answered %d, logged %s", w.Code, log)
	}
	call, _, h, log = newTestCall("GET", "/", "")
	defer func() {
		p := recover()
		if err, _ := p.(error); !errors.Is(err, http.ErrAbortHandler) ||
			!strings.Contains(log.String(), "panic: broken") {
			t.Errorf("a panic after the head continues as %v, logged %s", p, log)
		}
	}()
	h.Run(call, "/", func() error {
		_, _ = call.Writer.Write([]byte("half"))
		panic("broken")
	}, func(error) { t.Error("an error was written after the head") })
}

func TestHandler_RunLogsCanceledRequestsAtDebug(t *testing.T) {
	t.Parallel()
	call, _, h, log := newTestCall("GET", "/", "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	call.Request = call.Request.WithContext(ctx)
	h.Run(call, "/", ctx.Err, func(error) {})
	if !strings.Contains(log.String(), "level=DEBUG") {
		t.Errorf("logged %s", log)
	}
}

func TestCall_SetRetryAfterRoundsUp(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]string{0: "1", time.Millisecond: "1", 1001 * time.Millisecond: "2",
		30 * time.Second: "30"} {
		call, w, _, _ := newTestCall("GET", "/", "")
		call.SetRetryAfter(wait)
		if got := w.Header().Get("Retry-After"); got != want {
			t.Errorf("%s: Retry-After %q, want %q", wait, got, want)
		}
	}
}

func TestCall_LimitBodyRefusesLongBodies(t *testing.T) {
	t.Parallel()
	for body, fits := range map[string]bool{"1234": true, "12345": false} {
		call, _, _, _ := newTestCall("POST", "/", body)
		done := call.LimitBody(4, time.Minute)
		_, err := io.ReadAll(call.Request.Body)
		done()
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) == fits {
			t.Errorf("%d bytes: %v", len(body), err)
		}
	}
}

func TestScopeAlternatives_AddAdmin(t *testing.T) {
	t.Parallel()
	scopes := []account.Scope{account.ScopeRead, account.ScopeIdentities}
	if got := ScopeAlternatives(scopes); got != "read or identities or admin" {
		t.Error(got)
	}
	if got := JoinScopes(scopes, ", "); got != "read, identities" {
		t.Error(got)
	}
}
