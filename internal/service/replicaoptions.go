// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// ReplicaOptions make the service one of several on a PostgreSQL database. Without RelayAddress it
// is alone.
type ReplicaOptions struct {
	// where this replica listens for the others, and what they dial: host:port; "" = alone
	RelayAddress string
	// where clients reach this replica past the balancer: host:port; "" = only by the balancer
	Address string
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

// parse sets the settings of a replica, and notes every broken rule.
func (o *ReplicaOptions) parse(set *settings, postgres bool, note func(error)) {
	if o.Address != "" {
		host, port, err := net.SplitHostPort(o.Address)
		set.replicaAddress = net.JoinHostPort(host, port)
		note(o.checkAddress(host, port, err))
	}
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
	set.relayHost, set.relayPort = host, port
}

// checkAddress checks the address for clients, which was split, or err says why not.
func (o *ReplicaOptions) checkAddress(host, port string, err error) error {
	const field = "--replica-address"
	ip, ipErr := netip.ParseAddr(host)
	switch {
	case !o.enabled():
		return account.Invalid(field, o.Address,
			"is where clients reach one of several replicas: give --relay-address, too, or leave it out")
	case err != nil || ipErr != nil && !validHostName(host):
		return account.Invalid(field, o.Address,
			"must be the HOST:PORT by which clients reach this server itself, for example "+
				"one.fairlead.example.com:443 or 10.0.0.5:8443")
	case ip.IsUnspecified():
		return account.Invalid(field, o.Address,
			"must name an address of this machine that clients can dial, not all of its addresses")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
		return account.Invalid(field, o.Address, "the port must be a number from 1 to 65535")
	}
	if reason := tunnel.CheckReplicaIP(ip); ipErr == nil && !ip.Unmap().IsLoopback() && reason != nil {
		return account.Invalid(field, o.Address, fmt.Sprintf("%s %v, which clients do not dial", host, reason))
	}
	return nil
}

// validHostName reports whether s is a host's name, and not a way to write an IP address that only
// some programs know, such as 10.1 or 0x7f000001.
func validHostName(s string) bool {
	last := strings.ToLower(s[strings.LastIndexByte(s, '.')+1:])
	_, err := strconv.ParseUint(last, 0, 64)
	return validName(s) && !strings.HasPrefix(s, "*") && err != nil && strings.Trim(last, "0123456789") != ""
}
