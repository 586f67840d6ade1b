// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/printable"
	"github.com/fairlead-dev/fairlead/internal/service/redact"
)

// Limits of the failed logins.
const (
	keepFailures       = 24 * time.Hour
	maxAccountFailures = 100
	maxFailures        = 4000 // in all accounts together
	maxFailureText     = 500  // characters of a reason, and of a sentence
	maxNameText        = 200  // characters of each other text
	failureOverhead    = 400  // bytes of a failure beside its texts
)

// loginFailures are the failed logins of a day, by account, the one that failed last at the end. It
// has no lock of its own.
type loginFailures struct {
	of   map[string][]LoginFailure
	n    int
	size int64 // bytes
}

// LoginFailed records a failed login of the account. It removes what looks like a token from the
// texts. Equal failures of a day are one.
func (r *Recorder) LoginFailed(accountID string, f LoginFailure) {
	f.Shown, f.Reason = cleanText(f.Shown, maxFailureText), cleanText(f.Reason, maxFailureText)
	f.Person = printable.Escape(f.Person, maxNameText)
	f.Provider, f.AuthID = cleanText(f.Provider, maxNameText), printable.Escape(f.AuthID, maxNameText)
	f.At, f.Count, f.Replica = f.At.UTC(), 1, r.replica
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures.add(accountID, f)
}

func (l *loginFailures) add(accountID string, f LoginFailure) {
	if l.of == nil {
		l.of = map[string][]LoginFailure{}
	}
	all := l.of[accountID]
	if i := slices.IndexFunc(all, f.sameAs); i >= 0 {
		f.Count += all[i].Count
		all = slices.Delete(all, i, i+1)
		l.n--
		l.size -= f.size()
	}
	l.of[accountID] = append(all, f)
	l.n++
	l.size += f.size()
	if len(l.of[accountID]) > maxAccountFailures {
		l.dropOldest(accountID)
	}
	if l.n > maxFailures {
		most := accountID
		for id, of := range l.of {
			if len(of) > len(l.of[most]) {
				most = id
			}
		}
		l.dropOldest(most)
	}
}

// sameAs reports whether f and o are one but for their times and clients: many addresses must not
// push the other failures out.
func (f LoginFailure) sameAs(o LoginFailure) bool {
	o.At, o.Count, o.Client = f.At, f.Count, f.Client
	return f == o
}

func (f *LoginFailure) size() int64 {
	return int64(len(f.EndpointID)+len(f.EndpointURL)+len(f.AuthID)+len(f.Provider)+len(f.Person)+len(f.Shown)+
		len(f.Reason)) + failureOverhead
}

func (l *loginFailures) dropOldest(accountID string) {
	all := l.of[accountID]
	l.n--
	l.size -= all[0].size()
	if all = slices.Delete(all, 0, 1); len(all) == 0 {
		delete(l.of, accountID)
		return
	}
	l.of[accountID] = all
}

// expire drops the failures that are older than a day.
func (l *loginFailures) expire(now time.Time) {
	for id := range l.of {
		for len(l.of[id]) > 0 && now.Sub(l.of[id][0].At) > keepFailures {
			l.dropOldest(id)
		}
	}
}

// list returns the failures of an account that are not older than a day.
func (l *loginFailures) list(accountID string, now time.Time) []LoginFailure {
	all := slices.Clone(l.of[accountID])
	return slices.DeleteFunc(all, func(f LoginFailure) bool { return now.Sub(f.At) > keepFailures })
}

// newestFailures sorts failures, and returns the limit newest ones.
func newestFailures(all []LoginFailure, limit int) []LoginFailure {
	slices.SortStableFunc(all, func(a, b LoginFailure) int { return b.At.Compare(a.At) })
	return all[:min(len(all), max(limit, 0))]
}

// cleanText returns a text of another server's, or one that quotes it, for the owner of an endpoint:
// printable, at most so many characters, without what looks like a token.
func cleanText(s string, most int) string {
	return printable.Escape(redact.Tokens(s[:min(len(s), 4*most)]), most)
}
