// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"regexp"
	"runtime/debug"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// recorder remembers what was answered, for the log.
type recorder struct {
	http.ResponseWriter
	status  int
	started bool
}

func (w *recorder) WriteHeader(status int) {
	if !w.started {
		w.started, w.status = true, status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if !w.started {
		w.started, w.status = true, http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// writeJSON answers with a value.
func (c *call) writeJSON(status int, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encoding answer: %w", err)
	}
	c.w.Header().Set("Content-Type", "application/json")
	c.w.WriteHeader(status)
	if _, err := c.w.Write(append(body, '\n')); err != nil {
		return clientGone(err)
	}
	return nil
}

// clientGoneError says that nobody reads the answer; it is no failure of ours.
type clientGoneError struct{ cause error }

func (e clientGoneError) Error() string { return "client is gone: " + e.cause.Error() }
func (e clientGoneError) Unwrap() error { return e.cause }

func clientGone(err error) error { return clientGoneError{err} }

// writeError answers with the error body. The cause of a domain error, and every other error, stays
// in the log.
func (c *call) writeError(err error) {
	e := &account.Error{Code: account.CodeInternal, Msg: "internal error"}
	errors.As(err, &e)
	body := account.ErrorBody{Code: e.Code, Status: e.Code.Status(), Msg: e.Msg, Details: map[string]string{"operation_id": c.op},
		Errors: e.Fields}
	maps.Copy(body.Details, e.Details)
	switch body.Status {
	case http.StatusUnauthorized:
		c.w.Header().Set("WWW-Authenticate", `Bearer realm="fairlead"`)
	case http.StatusServiceUnavailable:
		c.w.Header().Set("Retry-After", "1")
	}
	_ = c.writeJSON(body.Status, body) // a client that is gone needs no answer
}

// panicked answers what a panic left unanswered. http.ErrAbortHandler keeps its meaning.
func (c *call) panicked(rt *route, p any) {
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p)
	}
	err := fmt.Errorf("panic: %v\n%s", p, debug.Stack())
	answered := c.w.started
	if !answered {
		c.writeError(err)
	}
	c.log(rt, err)
	if answered {
		panic(http.ErrAbortHandler) // half an answer must not look whole
	}
}

// log writes the one line of a request: changes and refusals at Info, failures of ours at Error,
// the rest at Debug. It holds neither the query nor what the client wrote.
func (c *call) log(rt *route, err error) {
	level, status := slog.LevelDebug, c.w.status
	var gone clientGoneError
	switch {
	case errors.As(err, &gone):
	case status >= 500 || err != nil && status < 400:
		level = slog.LevelError
	case err != nil || c.r.Method != http.MethodGet:
		level = slog.LevelInfo
	}
	ctx := context.WithoutCancel(c.r.Context())
	log := c.server.opt.Logger
	if !log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.String("operation_id", c.op), slog.String("method", account.Shorten(c.r.Method)),
		slog.String("route", rt.pattern),
		slog.String("path", maskSecrets(c.r.URL.Path)), slog.Int("status", status), slog.String("remote", c.r.RemoteAddr),
		slog.Duration("took", c.server.opt.Clock().Sub(c.started))}
	if c.key != nil {
		attrs = append(attrs, slog.String("account", c.key.AccountID), slog.String("key", c.key.ID))
	}
	if err != nil {
		attrs = append(attrs, slog.String("code", string(account.CodeOf(err))))
		if level == slog.LevelError {
			attrs = append(attrs, slog.String("err", err.Error()))
		}
	}
	log.LogAttrs(ctx, level, "api request", attrs...)
}

var secretPattern = regexp.MustCompile(`fl[ktr]_[A-Za-z0-9_-]*`)

// maskSecrets hides what somebody put into a path by mistake.
func maskSecrets(path string) string {
	return account.Shorten(secretPattern.ReplaceAllString(path, "(secret)"))
}
