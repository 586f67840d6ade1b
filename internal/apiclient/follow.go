// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
)

// Pauses of Follow grow from the first to the greatest, with full jitter.
const (
	firstPause = 200 * time.Millisecond
	MaxPause   = 2 * time.Second // MaxPause is the greatest one unless Follower.MaxPause says another.
)

// EndpointWatch is a running watch; *Watch is one. Next blocks until there is an event, the watch
// breaks or times out, or its context ends; the error is io.EOF if the service ended the watch.
type EndpointWatch interface {
	Next() (account.EndpointEvent, error)
	Close()
}

// Follower keeps what an account has.
type Follower interface {
	// List reads a complete list, applies it and returns its version.
	List(context.Context) (account.ResourceVersion, error)
	// Watch opens a watch that continues after a version.
	Watch(context.Context, account.ResourceVersion) (EndpointWatch, error)
	// Apply applies an event; BOOKMARK is one.
	Apply(account.EndpointEvent)
	// Fail is called with the error of each list or watch that failed while ctx lasts, but not when
	// the service ended the watch or no longer has the version.
	Fail(error)
	// MaxPause is the greatest pause after a list failed with the error.
	MaxPause(error) time.Duration
	// AwaitListDue returns when a complete list is due, or ctx has ended.
	AwaitListDue(ctx context.Context)
}

// Follow lists and then watches until ctx ends. A watch that broke is resumed where it was; a list
// is read again when that would miss changes. what names what is watched, for errors.
func Follow(ctx context.Context, what string, f Follower) {
	var tries backoff
	for ctx.Err() == nil {
		version, err := f.List(ctx)
		if err == nil {
			tries.reset()
			err = follow(ctx, what, f, version)
		}
		switch {
		case errors.Is(err, errListDue), ctx.Err() != nil:
			continue
		case account.CodeOf(err) != account.CodeGone:
			f.Fail(err)
		}
		timer.Sleep(ctx, tries.next(f.MaxPause(err)))
	}
}

// follow watches from the version on until a list is needed or the context ends.
func follow(ctx context.Context, what string, f Follower, version account.ResourceVersion) error {
	var tries backoff
	for {
		reached, err := watchOnce(ctx, f, version)
		if reached != version {
			version = reached
			tries.reset()
		}
		ended := errors.Is(err, io.EOF) // by the service, for example for a restart
		err = fmt.Errorf("watching %s: %w", what, err)
		switch {
		case ctx.Err() != nil, needsList(err):
			return err
		case !ended:
			f.Fail(err)
		}
		timer.Sleep(ctx, tries.next(MaxPause))
	}
}

// errListDue ends a watch when a complete list is due.
var errListDue = errors.New("a complete list is due")

// needsList reports whether, after this error, another watch from the same version would fail
// equally or miss changes: a key that was refused may be replaced by another account's.
func needsList(err error) bool {
	switch account.CodeOf(err) {
	case account.CodeNoCredential, account.CodeUnknownCredential, account.CodeUnknownKey, account.CodeExpired,
		account.CodeGone, account.CodeInvalid, account.CodeMalformed, account.CodeNotFound, account.CodeNoRoute,
		account.CodeBadAnswer:
		return true
	}
	return errors.Is(err, errListDue)
}

// watchOnce runs one watch until it breaks, and returns the version up to which everything was
// applied.
func watchOnce(ctx context.Context, f Follower, version account.ResourceVersion) (account.ResourceVersion, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel(nil)
	w, err := f.Watch(ctx, version)
	if err != nil {
		return version, err
	}
	defer w.Close()
	waiting.Go(func() {
		f.AwaitListDue(ctx)
		cancel(errListDue) // has no effect if ctx has ended
	})
	for {
		e, err := w.Next()
		if cause := context.Cause(ctx); errors.Is(cause, errListDue) {
			return version, cause
		}
		if err != nil {
			return version, err
		}
		f.Apply(e)
		version = e.ResourceVersion
	}
}

// IsTemporary reports whether a later attempt may succeed where a call or a watch failed.
func IsTemporary(err error) bool {
	switch account.CodeOf(err) {
	case account.CodeUnreachable, account.CodeBadAnswer, account.CodeUnavailable, account.CodeTooMany:
		return true
	}
	return false
}

// backoff is the limit of the last pause.
type backoff struct{ limit time.Duration }

func (b *backoff) reset() { b.limit = 0 }

func (b *backoff) next(greatest time.Duration) time.Duration {
	b.limit = min(max(2*b.limit, firstPause), greatest)
	return rand.N(b.limit)
}
