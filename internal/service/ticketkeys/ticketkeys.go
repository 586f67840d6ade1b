// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ticketkeys owns the keys of TLS session tickets: clients resume a session with a server
// that was restarted, and with every other server that has the same secret key.
//
// What comes in: the secret key and the tls.Config of each listener. What goes out: hooks in that
// config. For TLS 1.3 a key is derived for each listener and UTC day, which stays valid through the
// next day unless the listener's scope changes. TLS 1.3 agrees on fresh keys when it resumes, so that
// the secret key opens nothing that was recorded. TLS 1.2 does not; its tickets are sealed with
// random keys of the process.
package ticketkeys

import (
	"context"
	"crypto/tls"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
)

const (
	rotationInterval = time.Minute

	// clockTolerance is how far the clock of another server may be ahead: as long before midnight,
	// its tickets of tomorrow are accepted.
	clockTolerance = time.Hour

	// handshakeLimit is longer than a handshake may take.
	handshakeLimit = time.Minute
)

// Keys are the ticket keys of a server's listeners. Install is called before Run and before the
// configs are used; a nil *Keys leaves them as they are.
type Keys struct {
	secret    *seal.Key
	listeners []*listener

	mu sync.Mutex // mu guards days and scopes.
}

// listener has two configs that serve nothing: they hold the keys of its tickets.
type listener struct {
	name    string
	derived tls.Config // for TLS 1.3
	random  tls.Config // for TLS 1.2; crypto/tls makes its keys
	days    []string   // those of derived, with the scope
	scope   string     // the keys of another scope are different ones; "" = none

	former  tls.Config // for TLS 1.3, with the keys of the scope before
	changed time.Time  // time of the change of the scope; zero = none
}

// New returns Keys that are derived from the secret key.
func New(secret *seal.Key) *Keys { return &Keys{secret: secret} }

// Install makes a config use keys for the tickets of the listener with the name. Listeners with
// different names do not resume each other's sessions: a client that was led astray to another
// listener verifies its certificate.
func (k *Keys) Install(name string, c *tls.Config) {
	if k == nil {
		return
	}
	l := &listener{name: name}
	k.listeners = append(k.listeners, l)
	k.rotate(l, time.Now())
	c.WrapSession = func(state tls.ConnectionState, session *tls.SessionState) ([]byte, error) {
		return k.keysOfTicket(l, state).EncryptTicket(state, session)
	}
	c.UnwrapSession = func(ticket []byte, state tls.ConnectionState) (*tls.SessionState, error) {
		return l.keysFor(state.Version).DecryptTicket(ticket, state)
	}
}

// keysOfTicket returns the keys of a new ticket. A handshake that resumes a session may have begun in
// the scope before: in the time that it takes, such a handshake gets a ticket that is not accepted.
func (k *Keys) keysOfTicket(l *listener, state tls.ConnectionState) *tls.Config {
	k.mu.Lock()
	defer k.mu.Unlock()
	if state.DidResume && state.Version >= tls.VersionTLS13 && time.Since(l.changed) < handshakeLimit {
		return &l.former
	}
	return l.keysFor(state.Version)
}

func (l *listener) keysFor(version uint16) *tls.Config {
	if version < tls.VersionTLS13 {
		return &l.random
	}
	return &l.derived
}

// SetScope makes the tickets that the listener with the name has issued in another scope invalid.
func (k *Keys) SetScope(name, scope string) {
	if k == nil {
		return
	}
	for _, l := range k.listeners {
		if l.name == name {
			now := time.Now()
			k.mu.Lock()
			if l.scope != "" && l.scope != scope {
				l.former.SetSessionTicketKeys(k.keys(l, l.validDays(now)))
				l.changed = now
			}
			l.scope = scope
			k.mu.Unlock()
			k.rotate(l, now)
		}
	}
}

// Run changes the keys with the day until ctx is done. It compares wall-clock times, so a machine
// that slept catches up.
func (k *Keys) Run(ctx context.Context) {
	for timer.Sleep(ctx, rotationInterval) {
		for _, l := range k.listeners {
			k.rotate(l, time.Now())
		}
	}
}

func (k *Keys) rotate(l *listener, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	days := l.validDays(now)
	if slices.Equal(days, l.days) {
		return
	}
	l.derived.SetSessionTicketKeys(k.keys(l, days))
	l.days = days
}

// keys returns the keys of days, with their scope.
func (k *Keys) keys(l *listener, days []string) [][seal.KeySize]byte {
	keys := make([][seal.KeySize]byte, len(days))
	for i, day := range days {
		keys[i] = k.secret.Derive("TLS session tickets of " + l.name + " on " + day)
	}
	return keys
}

// validDays returns the days whose keys are valid in the listener's scope, with the scope.
func (l *listener) validDays(now time.Time) []string {
	days := validDays(now)
	for i := range days {
		if l.scope != "" {
			days[i] += " of " + l.scope
		}
	}
	return days
}

// validDays returns the days whose keys are valid. The first is that of new tickets.
func validDays(now time.Time) []string {
	now = now.UTC()
	all := []string{now.Format(time.DateOnly), now.AddDate(0, 0, -1).Format(time.DateOnly)}
	if ahead := now.Add(clockTolerance).Format(time.DateOnly); ahead != all[0] {
		all = append(all, ahead)
	}
	return all
}
