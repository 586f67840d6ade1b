// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// ReplicaOptions make the service one of several on a PostgreSQL database. Without RelayAddress it
// is alone.
type ReplicaOptions struct {
	// where this replica listens for the others, and what they dial: host:port; "" = alone
	RelayAddress string
	// how long a stopping replica accepts connections while it reports that it is not ready
	ShutdownDelay time.Duration
	// how long people who logged in may be served without news from the store
	Lease time.Duration
}

// Defaults and limits of replicas.
const (
	DefaultShutdownDelay = 15 * time.Second
	DefaultLease         = 15 * time.Second

	maxShutdownDelay = 10 * time.Minute
	minLease         = 5 * time.Second
	// maxLease is the lease of a replica that the others do not take for dead before its end.
	maxLease = 15 * time.Second
)

func (o *ReplicaOptions) enabled() bool { return o.RelayAddress != "" }

// validate notes every broken rule.
func (o *ReplicaOptions) validate(postgres bool, note func(error)) {
	if !o.enabled() {
		return
	}
	const field = "--relay-address"
	host, port, err := net.SplitHostPort(o.RelayAddress)
	switch {
	case err != nil || host == "" || !validName(host):
		note(account.Invalid(field, o.RelayAddress,
			"must be the HOST:PORT by which the other replicas reach this one, for example 10.0.0.5:8444 or "+
				"[fd00::5]:8444"))
	case net.ParseIP(host) != nil && net.ParseIP(host).IsUnspecified():
		note(account.Invalid(field, o.RelayAddress,
			"must name an address of this machine that the other replicas can dial, not all of its addresses"))
	default:
		note(checkListen(field, net.JoinHostPort(host, port)))
	}
	if !postgres {
		note(account.Invalid(field, o.RelayAddress,
			"is for several servers on one PostgreSQL database; give --database-url, or leave --relay-address out: "+
				"SQLite has one server"))
	}
	note(checkDuration("--shutdown-delay", o.ShutdownDelay, 0, maxShutdownDelay))
	note(checkDuration("--revocation-lease", o.Lease, minLease, maxLease))
}
