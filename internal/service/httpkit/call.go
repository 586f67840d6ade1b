// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package httpkit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Call is one HTTP request and the answer to it. One goroutine uses it.
type Call struct {
	Writer      *ResponseRecorder
	Request     *http.Request
	OperationID string          // this request's id, in its error and its log line
	Key         *account.APIKey // the caller's key; nil until it is authenticated
	ReadOnly    bool            // it changes nothing, whatever its method

	started time.Time
}

// NewCall returns the call of a request that arrived now.
func NewCall(w http.ResponseWriter, r *http.Request, now time.Time) Call {
	return Call{Writer: &ResponseRecorder{ResponseWriter: w}, Request: r, started: now,
		OperationID: account.NewID(account.PrefixOperation, now)}
}

// Context returns the request's context.
func (c *Call) Context() context.Context { return c.Request.Context() }

// AccountID returns the account that everything in the call is scoped to.
func (c *Call) AccountID() string { return c.Key.AccountID }

// Caller returns the account and the key on whose behalf the call writes.
func (c *Call) Caller() account.Caller {
	return account.Caller{AccountID: c.Key.AccountID, PrincipalID: c.Key.ID, OwnerCluster: c.Key.OwnerCluster()}
}

// ID returns the path value "id".
func (c *Call) ID() string { return c.Request.PathValue("id") }

// SetRetryAfter tells the client to wait before it asks again, in whole seconds, rounded up to at
// least one.
func (c *Call) SetRetryAfter(wait time.Duration) {
	c.Writer.Header().Set("Retry-After", strconv.Itoa(max(1, int((wait+time.Second-1)/time.Second))))
}

// Handler runs calls and logs each of them.
type Handler struct {
	Name   string // message of the log lines
	Logger *slog.Logger
	Meter  Meter // nil = nothing is counted
}

// Run runs handle. An error of it, or a panic, is answered by writeError, unless the answer has
// begun: then an error is only logged, and a panic ends the connection, so that the answer does not
// look complete. route is the pattern to log, "" for paths without one.
func (h *Handler) Run(c *Call, route string, handle func() error, writeError func(error)) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(p)
		}
		err, begun := fmt.Errorf("panic: %v\n%s", p, debug.Stack()), c.Writer.Begun()
		if !begun {
			writeError(err)
		}
		h.log(c, route, err, slog.LevelError)
		if begun {
			panic(http.ErrAbortHandler)
		}
	}()
	err := handle()
	if err != nil && !c.Writer.Begun() {
		writeError(err)
	}
	h.log(c, route, err, c.level(err))
}

// level returns Info for changes and refusals, Error for failures of the server, and Debug for all
// other requests and for those whose client has gone.
func (c *Call) level(err error) slog.Level {
	status := c.Writer.Status()
	switch {
	case errors.As(err, new(ClientGoneError)), err != nil && c.Context().Err() != nil:
		return slog.LevelDebug
	case status >= 500 || err != nil && status < 400:
		return slog.LevelError
	case err != nil || c.Request.Method != http.MethodGet && !c.ReadOnly:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// log counts a call and writes its line. It holds neither the query nor the body.
func (h *Handler) log(c *Call, route string, err error, level slog.Level) {
	h.count(c, err)
	ctx := context.WithoutCancel(c.Context())
	if !h.Logger.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.String("operation_id", c.OperationID),
		slog.String("method", account.Shorten(c.Request.Method)), slog.String("route", route),
		slog.String("path", maskSecrets(c.Request.URL.Path)), slog.Int("status", c.Writer.Status()),
		slog.String("remote", c.Request.RemoteAddr), slog.Duration("took", time.Since(c.started))}
	if c.Key != nil {
		attrs = append(attrs, slog.String("account", c.Key.AccountID), slog.String("key", c.Key.ID))
	}
	if err != nil {
		attrs = append(attrs, slog.String("code", string(account.CodeOf(err))))
		if level == slog.LevelError {
			attrs = append(attrs, slog.String("err", err.Error()))
		}
	}
	h.Logger.LogAttrs(ctx, level, h.Name, attrs...)
}

// count counts a call. What happens after the answer has begun is no error of it.
func (h *Handler) count(c *Call, err error) {
	if h.Meter == nil {
		return
	}
	status, code := c.Writer.Status(), account.Code("")
	if status >= http.StatusBadRequest {
		code = account.CodeOf(err)
	}
	h.Meter.CountAnswer(status, code)
}

var secretPattern = regexp.MustCompile(`fl[ktrd]_[A-Za-z0-9_-]*`)

// maskSecrets hides a secret that a client put into the path by mistake.
func maskSecrets(path string) string {
	return account.Shorten(secretPattern.ReplaceAllString(path, "(secret)"))
}

// LimitBody limits the size of the request's body and the time until it has arrived. The caller
// calls done when the body is read.
func (c *Call) LimitBody(maxBytes int64, timeout time.Duration) (done func()) {
	control := http.NewResponseController(c.Writer)
	_ = control.SetReadDeadline(time.Now().Add(timeout)) // a ResponseWriter of a test has no deadlines
	c.Request.Body = http.MaxBytesReader(c.Writer, c.Request.Body, maxBytes)
	return func() { _ = control.SetReadDeadline(time.Time{}) }
}

// JoinScopes joins the scopes with the separator.
func JoinScopes(scopes []account.Scope, sep string) string {
	texts := make([]string, len(scopes))
	for i, s := range scopes {
		texts[i] = string(s)
	}
	return strings.Join(texts, sep)
}

// ScopeAlternatives lists the scopes of which a key needs one: those given, or admin.
func ScopeAlternatives(scopes []account.Scope) string {
	return JoinScopes(append(slices.Clone(scopes), account.ScopeAdmin), " or ")
}

// ResponseRecorder remembers the status that was answered.
type ResponseRecorder struct {
	http.ResponseWriter
	status int
}

// Status returns the status that was answered, 0 before the answer has begun.
func (w *ResponseRecorder) Status() int { return w.status }

// Begun reports whether the answer has begun.
func (w *ResponseRecorder) Begun() bool { return w.status != 0 }

// WriteHeader implements http.ResponseWriter.
func (w *ResponseRecorder) WriteHeader(status int) {
	if !w.Begun() {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *ResponseRecorder) Write(b []byte) (int, error) {
	if !w.Begun() {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w *ResponseRecorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
