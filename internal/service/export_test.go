// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/device"
	"github.com/fairlead-dev/fairlead/internal/service/lease"
	"github.com/fairlead-dev/fairlead/internal/service/peers"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/service/store/membership"
	"github.com/fairlead-dev/fairlead/internal/service/traffic"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// What this package's external tests set and call.

// SecretKeyFile is the name of the key's file in the data directory.
const SecretKeyFile = secretKeyFile

// SetOnStoreOpen makes the service pass its open store to f.
func (o *Options) SetOnStoreOpen(f func(*store.Store)) { o.onStoreOpen = f }

// SetStoreClock sets the clock of the store.
func (o *Options) SetStoreClock(now func() time.Time) { o.storeClock = now }

// SetMaxUnauthenticated limits the connections of one client without a credential.
func (o *Options) SetMaxUnauthenticated(n int) { o.maxUnauthenticated = n }

// SetSessionSweepInterval sets how often ended sessions of people are cut.
func (o *Options) SetSessionSweepInterval(d time.Duration) { o.sessionSweepInterval = d }

// SetWrapLoginStore puts a wrapper between login actions and the store.
func (o *Options) SetWrapLoginStore(wrap func(account.Logins) account.Logins) {
	o.wrapLoginStore = wrap
}

// SetWrapRevoker puts a wrapper around what revokes sessions.
func (o *Options) SetWrapRevoker(wrap func(account.Revoker) account.Revoker) { o.wrapRevoker = wrap }

// SetBeatTimes sets the times of a replica's beats.
func (o *Options) SetBeatTimes(t membership.BeatTimes) { o.beatTimes = t }

// SetLeaseClock sets the clocks of a replica's lease.
func (o *Options) SetLeaseClock(c lease.Clock) { o.leaseClock = &c }

// SetDialPeer sets what dials other replicas.
func (o *Options) SetDialPeer(d peers.Dialer) { o.dialPeer = d }

// DeviceOf returns the device that a service with the options records for a request.
func DeviceOf(o Options, r *http.Request, ip netip.Addr) (account.Device, error) {
	p := &people{set: &settings{Options: o}, log: o.Logger}
	if err := p.open(); err != nil {
		return account.Device{}, err
	}
	return device.FromRequest(r, ip, p.geo.Lookup(ip)), nil
}

// KnowsLocation reports whether a service without location databases offers locations to policies.
func KnowsLocation(ip netip.Addr) bool { return (*locator)(nil).Locate(ip) != trafficpolicy.Geo{} }

// Validate passes every broken rule of the options to note.
func (o *PublicOptions) Validate(note func(error)) { o.parse(&settings{}, note) }

// SetRecorder sets what records the traffic.
func (o *Options) SetRecorder(r *traffic.Recorder) { o.recorder = r }
