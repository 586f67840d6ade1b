// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
	"github.com/fairlead-dev/fairlead/internal/printable"
)

// ErrWatchUnsupported is the error of a watch that the API answered with a list: it does not
// support watches. Callers list periodically instead.
var ErrWatchUnsupported = errors.New("the API answered the watch with a list: it has no watch")

// Watch is an open watch of endpoints. One goroutine reads it; Close may be called from any.
type Watch struct{ watchLines }

// AuditWatch is an open watch of audit events. One goroutine reads it; Close may be called from
// any.
type AuditWatch struct{ watchLines }

// watchLines are the lines of a watch.
type watchLines struct {
	client     *Client
	res        *http.Response
	lines      *bufio.Reader
	cancel     context.CancelFunc
	timer      *time.Timer // calls timedOut
	isTimedOut atomic.Bool
}

// WatchEndpoints opens a watch that continues after a version: of a list, or of the last event.
// CodeGone means: list again. The watch ends with ctx.
func (c *Client) WatchEndpoints(
	ctx context.Context, f account.EndpointFilter, v account.ResourceVersion,
) (*Watch, error) {
	w := &Watch{}
	if err := c.openWatch(ctx, &w.watchLines, resource.Endpoints, EndpointQuery(f), v); err != nil {
		return nil, err
	}
	return w, nil
}

// WatchAuditEvents is WatchEndpoints for audit events.
func (c *Client) WatchAuditEvents(
	ctx context.Context, f account.AuditFilter, v account.ResourceVersion,
) (*AuditWatch, error) {
	w := &AuditWatch{}
	if err := c.openWatch(ctx, &w.watchLines, resource.Events, auditQuery(f), v); err != nil {
		return nil, err
	}
	return w, nil
}

func (c *Client) openWatch(
	ctx context.Context, w *watchLines, path string, query url.Values, v account.ResourceVersion,
) error {
	query.Set("watch", "true")
	query.Set("resource_version", v.String())
	ctx, w.cancel = context.WithCancel(ctx)
	w.client = c
	w.timer = time.AfterFunc(c.opt.Timeout, w.timedOut)       // for the beginning
	res, err := c.send(ctx, http.MethodGet, path, query, nil) //nolint:bodyclose // Close does
	if err == nil {
		w.res = res
		err = checkWatch(res)
	}
	w.timer.Stop()
	if err != nil {
		w.Close()
		if w.isTimedOut.Load() {
			err = unreachable(c.base.Host, fmt.Errorf("no whole answer within %s", c.opt.Timeout))
		}
		return err
	}
	w.lines = bufio.NewReaderSize(res.Body, 16<<10)
	return nil
}

// checkWatch checks the head of an answer. It returns ErrWatchUnsupported only for a whole list: an
// incomplete one is an outage, after which a client must watch again at once.
func checkWatch(res *http.Response) error {
	switch kind := contentType(res); {
	case res.StatusCode != http.StatusOK:
		return readError(res)
	case kind == "application/json":
		var list endpointPage
		if err := decode(res.Body, &list); err != nil || list.Endpoints == nil {
			return badAnswer(res, err, "instead of a watch or a list")
		}
		return ErrWatchUnsupported
	case kind != "application/x-ndjson":
		return badAnswer(res, nil, "instead of a watch")
	}
	return nil
}

func (w *watchLines) timedOut() {
	w.isTimedOut.Store(true)
	w.cancel()
}

// Close ends the watch; a Next that waits returns an error.
func (w *watchLines) Close() {
	w.cancel()
	w.timer.Stop()
	if w.res != nil {
		_ = w.res.Body.Close()
	}
}

// Next waits for the next event; BOOKMARK is one. After an error the watch is over: errors.Is(err,
// io.EOF) when the service ended it, CodeUnreachable when it broke off or was silent for too long,
// CodeBadAnswer when a line was no event.
func (w *Watch) Next() (e account.EndpointEvent, err error) {
	err = w.next(&e, func() error {
		known := []account.EventType{account.Added, account.Modified, account.Deleted}
		return checkEvent(e.Type, known, "endpoint", e.Endpoint != nil && e.Endpoint.ID != "", e.ResourceVersion)
	})
	return e, err
}

// Next is Watch.Next for audit events: ADDED, or BOOKMARK.
func (w *AuditWatch) Next() (l account.AuditWatchEvent, err error) {
	err = w.next(&l, func() error {
		known := []account.EventType{account.Added}
		return checkEvent(l.Type, known, "event", l.Event != nil && l.Event.ID != "", l.ResourceVersion)
	})
	return l, err
}

// checkEvent checks the type of an event, the object that types but BOOKMARK have, and the version.
func checkEvent(
	kind account.EventType, known []account.EventType, object string, hasObject bool, v account.ResourceVersion,
) error {
	switch {
	case kind != account.Bookmark && !slices.Contains(known, kind):
		return fmt.Errorf("its type %q is unknown", account.Shorten(string(kind)))
	case kind != account.Bookmark && !hasObject:
		return errors.New("it has no " + object)
	case v == (account.ResourceVersion{}):
		return errors.New("it has no resource_version")
	}
	return nil
}

// next decodes the next line, which check looks at. An error closes the watch.
func (w *watchLines) next(into any, check func() error) (err error) {
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	w.timer.Reset(w.client.opt.WatchIdleTimeout)
	line, err := w.readLine()
	w.timer.Stop()
	switch {
	case w.isTimedOut.Load():
		w.client.CloseIdleConnections() // a dead network has likely broken them as well
		return &account.Error{Code: account.CodeUnreachable,
			Msg: fmt.Sprintf("the service at %s sent nothing for %s", w.client.base.Host,
				w.client.opt.WatchIdleTimeout)}
	case errors.Is(err, errLineTooLong):
		return w.badLine(err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &account.Error{Code: account.CodeUnreachable, Msg: "the watch of " + w.client.base.Host + " ended",
			Cause: connectionLost{err}}
	case err != nil:
		return &account.Error{Code: account.CodeUnreachable, Msg: "the watch of " + w.client.base.Host + " ended",
			Cause: withoutPort(err)}
	}
	if err := json.Unmarshal(line, into); err != nil {
		return w.badLine(errors.New(printable.DecodeError(err.Error())))
	}
	if err := check(); err != nil {
		return w.badLine(err)
	}
	return nil
}

func (w *watchLines) badLine(cause error) error {
	return &account.Error{Code: account.CodeBadAnswer, Status: http.StatusOK,
		Msg: "a line of the watch of " + w.client.base.Host + " is no event", Cause: cause}
}

var errLineTooLong = fmt.Errorf("it has more than %d bytes", maxLine)

// connectionLost is a connection that ended within a line.
type connectionLost struct{ cause error }

func (connectionLost) Error() string   { return "the connection broke off" }
func (e connectionLost) Unwrap() error { return e.cause }

// readLine returns a whole line; io.ErrUnexpectedEOF for an incomplete one.
func (w *watchLines) readLine() ([]byte, error) {
	var line []byte
	for {
		part, err := w.lines.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLine:
			return nil, errLineTooLong
		case err == nil:
			return line, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}
