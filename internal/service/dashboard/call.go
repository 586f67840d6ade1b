// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// RefreshHeader says that a script reads the page again: it wants 401 instead of the way to the
// sign-in page, and leaves notices alone.
const RefreshHeader = "Fairlead-Refresh"

const maxForm = 64 << 10

// call is one request on its way through the checks.
type call struct {
	server  *server
	w       *recorder
	r       *http.Request
	signIn  *account.DashboardSession // nil on pages without one
	op      string                    // operation id
	gone    *gone                     // what a page that is not found says, nil for the error's own words
	started time.Time
}

func (c *call) ctx() context.Context { return c.r.Context() }

func (c *call) accountID() string { return c.signIn.Key.AccountID }

func (c *call) caller() account.Caller {
	return account.Caller{AccountID: c.signIn.Key.AccountID, PrincipalID: c.signIn.Key.ID}
}

// may says whether the key has one of the scopes, or admin.
func (c *call) may(scopes ...account.Scope) bool { return c.signIn.Key.HasAnyScope(scopes...) }

func (c *call) id() string { return c.r.PathValue("id") }

func (c *call) refresh() bool { return c.r.Header.Get(RefreshHeader) != "" }

// recorder remembers what was answered, for the log.
type recorder struct {
	http.ResponseWriter
	status int
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// ServeHTTP checks in this order: origin (403), sign-in (the way to its page), whether anything is
// there (404, 405), scope (403), draining (503), form (400); the rest is the handler's.
func (rt *route) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{server: rt.server, w: &recorder{ResponseWriter: w}, r: r, started: rt.server.opt.Clock()}
	c.op = account.NewID(account.PrefixOperation, c.started)
	defer func() {
		if p := recover(); p != nil {
			c.panicked(rt, p)
		}
	}()
	err := rt.serve(c)
	if err != nil && c.w.status == 0 {
		c.showError(err)
	}
	c.log(rt, err)
}

func (rt *route) serve(c *call) error {
	s, writes := rt.server, c.r.Method != http.MethodGet && c.r.Method != http.MethodHead
	if err := s.origins.Check(c.r); err != nil || c.r.TLS != nil && overPlainHTTP(c.r) {
		return account.Errorf(account.CodeScope,
			"the form was not sent from a page of this dashboard; open the page again and send it from there")
	}
	if !rt.open {
		if err := s.recognise(c); err != nil {
			return c.askToSignIn(err)
		}
	}
	handle, scopes := rt.get, rt.scopes
	if writes {
		handle, scopes = rt.post, rt.writes
	}
	switch {
	case rt.get == nil && rt.post == nil:
		return account.Errorf(account.CodeNoRoute, "there is no such page")
	case handle == nil || writes && c.r.Method != http.MethodPost:
		c.w.Header().Set("Allow", rt.allowed())
		return account.Errorf(account.CodeMethod, "this page cannot be asked with %s", account.Shorten(c.r.Method))
	case !rt.open && !c.may(scopes...):
		return account.Errorf(account.CodeScope, "this needs an API key with the scope %s; yours has %s", scopeList(scopes),
			joinScopes(c.signIn.Key.Scopes, " and "))
	}
	if writes {
		if s.opt.Draining() && !rt.open {
			return account.Errorf(account.CodeUnavailable,
				"the server is about to stop, and changes nothing any more; try again in a moment")
		}
		if err := c.readForm(); err != nil {
			return err
		}
	}
	return handle(c)
}

// overPlainHTTP reports whether a form's page was loaded over plain http, on which anybody on the
// way can write it. http.CrossOriginProtection compares the hosts only, for browsers that send no
// Sec-Fetch-Site.
func overPlainHTTP(r *http.Request) bool {
	return strings.HasPrefix(strings.ToLower(r.Header.Get("Origin")), "http:")
}

func (rt *route) allowed() string {
	var methods []string
	if rt.get != nil {
		methods = append(methods, http.MethodGet)
	}
	if rt.post != nil {
		methods = append(methods, http.MethodPost)
	}
	return strings.Join(methods, ", ")
}

func scopeList(scopes []account.Scope) string {
	return joinScopes(append(append([]account.Scope{}, scopes...), account.ScopeAdmin), " or ")
}

func joinScopes(scopes []account.Scope, with string) string {
	texts := make([]string, len(scopes))
	for i, s := range scopes {
		texts[i] = string(s)
	}
	return strings.Join(texts, with)
}

// readForm reads the form that was sent, bounded in size and time.
func (c *call) readForm() error {
	control := http.NewResponseController(c.w)
	_ = control.SetReadDeadline(time.Now().Add(c.server.opt.Limits.BodyTimeout)) // a writer of a test has none
	c.r.Body = http.MaxBytesReader(c.w, c.r.Body, maxForm)
	if err := c.r.ParseForm(); err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return account.Errorf(account.CodeTooLarge, "the form has more than %d bytes", maxForm)
		}
		return account.Errorf(account.CodeMalformed, "the form cannot be read; open the page again and send it from there")
	}
	_ = control.SetReadDeadline(time.Time{})
	return nil
}

// redirect answers a form: the browser reads the page at the path next, which says the notice once.
func (c *call) redirect(to string, n notice) error {
	if n.Code != "" {
		setNotice(c.w.Header(), n)
	}
	http.Redirect(c.w, c.r, to, http.StatusSeeOther)
	return nil
}

// askToSignIn sends the browser to the sign-in page and, from there, back.
func (c *call) askToSignIn(err error) error {
	if code := account.CodeOf(err); code != account.CodeUnknownCredential && code != account.CodeExpired &&
		code != account.CodeNoCredential {
		return err
	}
	if c.refresh() || c.r.Header.Get("Accept") == "text/event-stream" {
		c.w.WriteHeader(http.StatusUnauthorized)
		return nil
	}
	to := Path + "sign-in"
	if c.r.Method == http.MethodGet && c.r.URL.Path != Path {
		to += "?" + url.Values{"return": {c.r.URL.RequestURI()}}.Encode()
	}
	http.Redirect(c.w, c.r, to, http.StatusSeeOther)
	return nil
}

// localPath returns a path of the dashboard that somebody else said, or the other one when it is
// anything else.
func localPath(said, otherwise string) string {
	u, err := url.Parse(said)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" ||
		!strings.HasPrefix(u.Path, Path) || strings.Contains(u.Path, "//") ||
		strings.ContainsAny(said, "\\\r\n\t\x00") || strings.Contains(u.Path, "/..") {
		return otherwise
	}
	u.Fragment, u.RawFragment = "", ""
	return u.String()
}

func (c *call) panicked(rt *route, p any) {
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p)
	}
	err := fmt.Errorf("panic: %v\n%s", p, debug.Stack())
	answered := c.w.status != 0
	if !answered {
		c.showError(err)
	}
	c.log(rt, err)
	if answered {
		panic(http.ErrAbortHandler) // half a page must not look whole
	}
}

// log writes the one line of a request: changes and refusals at Info, failures of ours at Error,
// the rest at Debug. It holds no query.
func (c *call) log(rt *route, err error) {
	level := slog.LevelDebug
	switch {
	case c.r.Context().Err() != nil: // the browser is gone
	case c.w.status >= 500 || err != nil && c.w.status < 400:
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
		slog.Int("status", c.w.status), slog.String("remote", c.r.RemoteAddr),
		slog.Duration("took", c.server.opt.Clock().Sub(c.started))}
	if c.signIn != nil {
		attrs = append(attrs, slog.String("account", c.signIn.Key.AccountID), slog.String("key", c.signIn.Key.ID))
	}
	if err != nil {
		attrs = append(attrs, slog.String("code", string(account.CodeOf(err))))
		if level == slog.LevelError {
			attrs = append(attrs, slog.String("err", err.Error()))
		}
	}
	log.LogAttrs(ctx, level, "dashboard request", attrs...)
}
