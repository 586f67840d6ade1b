// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
)

const (
	pollEvery    = 10 * time.Second // if the server does not support watches
	rewatchEvery = time.Minute      // how often a watch is tried again on such a server
	firstBackoff = 200 * time.Millisecond
	maxBackoff   = 2 * time.Second
)

// Feed keeps a Set up to date: it reads a complete list and watches from the list's version,
// resuming after failures. A failure changes nothing in the Set.
type Feed struct {
	Source Source
	Set    *Set
	// OnChange is called with every change. It must not block.
	OnChange func(Change)
	// RecordedSource returns the account that an earlier manager recorded; it is called before the
	// first list.
	RecordedSource func(context.Context) (SourceIdentity, error)
	Log            logr.Logger

	recordedLoaded bool
	mu             sync.Mutex
	status         FeedStatus
}

// FeedStatus is the state of the Feed.
type FeedStatus struct {
	// Polling reports that the server does not support watches.
	Polling bool
	// WithoutClusterset reports that the server does not know what clusters export.
	WithoutClusterset bool
	// Err is why the account cannot be read, or nil.
	Err error
	// Since is when Err first occurred; zero if Err is nil.
	Since time.Time
}

// Status returns the feed's state. It is safe for concurrent use.
func (f *Feed) Status() FeedStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// Start runs the feed until the context ends. It returns nil.
func (f *Feed) Start(ctx context.Context) error {
	var tries backoff
	for ctx.Err() == nil {
		version, err := f.list(ctx)
		if err == nil {
			tries.reset()
			err = f.watchFrom(ctx, version)
		}
		switch {
		case errors.Is(err, errListDue):
			continue
		case account.CodeOf(err) == account.CodeGone:
			f.Log.V(1).Info("The account no longer has our version; listing again")
		default:
			f.recordError(ctx, err)
		}
		timer.Sleep(ctx, tries.next())
	}
	return nil
}

func (f *Feed) list(ctx context.Context) (account.ResourceVersion, error) {
	if err := f.loadRecordedSource(ctx); err != nil {
		return account.ResourceVersion{}, err
	}
	requested := time.Now()
	snapshot, err := f.Source.List(ctx)
	if err != nil {
		return account.ResourceVersion{}, fmt.Errorf("listing the account's endpoints: %w", err)
	}
	f.OnChange(f.Set.Replace(snapshot, requested))
	f.setWithoutClusterset(snapshot.WithoutClusterset)
	f.recordSuccess()
	return snapshot.Version, nil
}

func (f *Feed) loadRecordedSource(ctx context.Context) error {
	if f.recordedLoaded {
		return nil
	}
	recorded, err := f.RecordedSource(ctx)
	if err != nil {
		return fmt.Errorf("reading which account was recorded: %w", err)
	}
	f.Set.SetRecordedSource(recorded)
	f.recordedLoaded = true
	return nil
}

// watchFrom watches from the version on, resuming a watch that broke, until the version is gone or
// the context ends. It polls if the server does not support watches.
func (f *Feed) watchFrom(ctx context.Context, version account.ResourceVersion) error {
	var tries backoff
	for {
		reached, err := f.watch(ctx, version)
		if reached != version {
			version = reached
			tries.reset()
		}
		switch {
		case ctx.Err() != nil, needsList(err):
			return err
		case errors.Is(err, ErrWatchUnsupported):
			if version, err = f.poll(ctx); err != nil {
				return err
			}
		case errors.Is(err, io.EOF): // the service ended it, for example for a restart
			timer.Sleep(ctx, tries.next())
		default:
			f.recordError(ctx, err)
			timer.Sleep(ctx, tries.next())
		}
	}
}

// needsList reports whether, after this error, another watch from the same version would fail
// equally or miss changes: a key that was refused may be replaced by another account's.
func needsList(err error) bool {
	if errors.Is(err, errListDue) {
		return true
	}
	switch account.CodeOf(err) {
	case account.CodeNoCredential, account.CodeUnknownCredential, account.CodeUnknownKey, account.CodeExpired,
		account.CodeGone, account.CodeInvalid, account.CodeMalformed, account.CodeNotFound, account.CodeNoRoute,
		account.CodeBadAnswer:
		return true
	}
	return false
}

// watch runs one watch until it breaks, and returns the version up to which everything was applied.
func (f *Feed) watch(ctx context.Context, version account.ResourceVersion) (account.ResourceVersion, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel(nil)
	w, err := f.Source.Watch(ctx, version)
	if err != nil {
		return version, fmt.Errorf("watching the account's endpoints: %w", err)
	}
	defer w.Close()
	f.setPolling(false)
	waiting.Go(func() { f.endWatchWhenListDue(ctx, cancel) })
	for {
		ev, err := w.Next()
		if cause := context.Cause(ctx); errors.Is(cause, errListDue) {
			return version, cause
		}
		if err != nil {
			return version, fmt.Errorf("watching the account's endpoints: %w", err)
		}
		f.recordSuccess()
		if ev.Type != account.Bookmark {
			f.OnChange(f.Set.Apply(ev))
		}
		version = ev.ResourceVersion
	}
}

// errListDue ends a watch when a complete list is due.
var errListDue = errors.New("a complete list is due")

// endWatchWhenListDue ends the watch when the Set needs a complete list. It returns when ctx is
// done.
func (f *Feed) endWatchWhenListDue(ctx context.Context, end context.CancelCauseFunc) {
	for ctx.Err() == nil {
		at, changed := f.Set.nextList()
		wait, stop := ctx, context.CancelFunc(func() {})
		if !at.IsZero() {
			wait, stop = context.WithDeadline(ctx, at)
		}
		select {
		case <-changed:
		case <-wait.Done():
			end(errListDue) // has no effect if ctx is done
		}
		stop()
	}
}

// poll lists with jitter until a watch is to be tried again, and returns the last list's version.
func (f *Feed) poll(ctx context.Context) (account.ResourceVersion, error) {
	f.setPolling(true)
	var version account.ResourceVersion
	for until := time.Now().Add(rewatchEvery); time.Now().Before(until); {
		timer.Sleep(ctx, pollEvery*9/10+rand.N(pollEvery/5))
		if ctx.Err() != nil {
			return version, ctx.Err()
		}
		var err error
		if version, err = f.list(ctx); err != nil {
			return version, err
		}
	}
	return version, nil
}

func (f *Feed) setPolling(polling bool) {
	f.mu.Lock()
	changed := f.status.Polling != polling
	f.status.Polling = polling
	f.mu.Unlock()
	switch {
	case changed && polling:
		f.Log.Info("This server does not support watches; listing the endpoints every 10 s, so changes take that long")
	case changed:
		f.Log.Info("Watching the account's endpoints instead of listing them")
	}
}

func (f *Feed) setWithoutClusterset(without bool) {
	f.mu.Lock()
	changed := f.status.WithoutClusterset != without
	f.status.WithoutClusterset = without
	f.mu.Unlock()
	switch {
	case changed && without:
		f.Log.Info("This server does not know the binding clusterset: nothing is imported from other clusters, and "+
			"imports that exist stay as they are; update the server", "retryAfter", clustersetRetry.String())
	case changed:
		f.Log.Info("This server knows the binding clusterset now; importing what other clusters export")
	}
}

func (f *Feed) recordSuccess() {
	f.mu.Lock()
	recovered := f.status.Err != nil
	f.status.Err, f.status.Since = nil, time.Time{}
	f.mu.Unlock()
	if recovered {
		f.Log.Info("The account can be read again")
	}
}

// recordError records the error and logs it if it changed.
func (f *Feed) recordError(ctx context.Context, err error) {
	if ctx.Err() != nil || err == nil {
		return
	}
	f.mu.Lock()
	changed := f.status.Err == nil || f.status.Err.Error() != err.Error()
	if f.status.Err == nil {
		f.status.Since = time.Now()
	}
	f.status.Err = err
	f.mu.Unlock()
	if changed {
		f.Log.Error(err, "The account cannot be read; projected endpoints stay, and reading is retried")
	}
}

// backoff grows from firstBackoff to maxBackoff, with full jitter.
type backoff struct{ limit time.Duration }

func (b *backoff) reset() { b.limit = 0 }

func (b *backoff) next() time.Duration {
	b.limit = min(max(2*b.limit, firstBackoff), maxBackoff)
	return rand.N(b.limit)
}
