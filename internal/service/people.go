// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/service/geo"
	"github.com/fairlead-dev/fairlead/internal/service/lease"
	"github.com/fairlead-dev/fairlead/internal/service/live"
	"github.com/fairlead-dev/fairlead/internal/service/login"
	"github.com/fairlead-dev/fairlead/internal/service/login/oidc"
	"github.com/fairlead-dev/fairlead/internal/service/login/saml"
	"github.com/fairlead-dev/fairlead/internal/service/traffic"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

const (
	// sessionSweepInterval is how often what is served for people's sessions is compared with the
	// store: how late a session's time-out cuts.
	sessionSweepInterval = 2 * time.Second
	sessionSweepTimeout  = 5 * time.Second // limit for the store's answer
)

// people are those who log in at the edge: their logins, their sessions with what is being served
// for them, and where their addresses are.
type people struct {
	set          *settings
	log          *slog.Logger
	meter        *sessionMetrics
	geo          *geo.Databases // nil without --geoip-database
	lease        *lease.Lease   // nil without replicas
	live         *live.Registry // what is being served
	logins       account.Logins
	local        *revoker
	revoker      account.Revoker
	handler      *login.Handler
	certificates *loginCertificates
}

func (p *people) open() (err error) {
	if len(p.set.GeoIP) == 0 {
		return nil
	}
	if p.geo, err = geo.Open(p.set.GeoIP, p.log); err != nil {
		return fmt.Errorf("--geoip-database: %w", err)
	}
	return nil
}

// wire constructs the store and the handler of login actions, and the revoker of sessions.
func (p *people) wire(d *data, r *replicas, failures *traffic.Recorder) {
	p.lease, p.live = r.lease, live.New(r.lease)
	p.logins = &meteredLogins{d.store, p.meter}
	if f := p.set.wrapLoginStore; f != nil {
		p.logins = f(p.logins)
	}
	p.local = &revoker{store: d.store, liveSessions: p.live, meter: p.meter, log: p.log}
	if !r.alone() {
		p.local.peers = r
	}
	p.revoker = p.local
	if f := p.set.wrapRevoker; f != nil {
		p.revoker = f(p.revoker)
	}
	factory := oidc.Factory()
	p.handler = login.New(login.Options{
		Store: p.logins, Revoker: p.revoker, Live: p.live, Key: d.key, Locations: p.geo,
		Allow: p.set.loginAllow, Logger: p.log, ClockChecker: d, Failures: failures,
		Providers: map[trafficpolicy.LoginKind]login.Factory{
			trafficpolicy.LoginOAuth: factory, trafficpolicy.LoginOIDC: factory,
			trafficpolicy.LoginSAML: saml.Factory(time.Now),
		},
	})
	p.certificates = &loginCertificates{store: d.store, logins: p.handler, log: p.log}
}

// run cuts what is served for sessions that are over until serving is done.
func (p *people) run(serving context.Context, tasks *group) {
	tasks.run(serving, p.sweepSessions, p.certificates.run)
	tasks.Go(func() { p.live.Run(serving, p.countLeaseEnded) })
	if p.geo != nil {
		tasks.run(serving, p.geo.Run)
	}
}

func (p *people) close() {
	if p.handler != nil {
		p.handler.Close()
	}
}

// sweepSessions cuts the requests of sessions that are over: expired, or revoked by another
// process. Each complete comparison renews the lease. One that finds nothing being served is
// complete without the store: a request that begins later reads its session itself.
func (p *people) sweepSessions(ctx context.Context) {
	failing := false
	interval := cmp.Or(p.set.sessionSweepInterval, sessionSweepInterval)
	for first := true; first || timer.Sleep(ctx, interval); first = false {
		began := p.lease.Now() // before what is being served is listed
		err := p.compareSessions(ctx)
		switch {
		case err == nil:
			p.lease.Compared(began)
		case !failing && ctx.Err() == nil && p.lease == nil:
			p.log.Error("people's sessions cannot be compared with the store; what is open stays open, "+
				"new requests are refused", "err", err)
		case !failing && ctx.Err() == nil:
			p.log.Error("people's sessions cannot be compared with the store; what is open ends with the lease, "+
				"new requests are refused", "err", err)
		}
		failing = err != nil
	}
}

// compareSessions compares the sessions that are being served with the store, once.
func (p *people) compareSessions(ctx context.Context) error {
	ids := p.live.Sessions()
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sessionSweepTimeout)
	defer cancel()
	alive, err := p.logins.LiveSessionIDs(ctx, ids)
	if err != nil {
		return err
	}
	over := slices.DeleteFunc(ids, func(id string) bool { return alive[id] })
	if streams := p.live.Abort(over); streams > 0 {
		p.meter.countExpired(len(over), streams)
		p.log.Info("requests were cut: their sessions are over", "sessions", over, "streams", streams)
	}
	return nil
}

// countLeaseEnded counts requests that ended because the lease did.
func (p *people) countLeaseEnded(requests int, first bool) {
	p.meter.countCut(leaseReason, requests)
	if first {
		p.log.Error("people are not served: the store has not answered this server for longer than the lease; "+
			"what they had open was ended", "requests", requests)
	}
}

// locator looks up addresses for traffic policies. Without location databases, nil, it finds none.
type locator geo.Databases

// Locate implements trafficpolicy.Locator.
func (l *locator) Locate(ip netip.Addr) trafficpolicy.Geo {
	p := (*geo.Databases)(l).Lookup(ip)
	g := trafficpolicy.Geo{City: p.City, Country: p.Country, CountryCode: p.CountryCode, Subdivision: p.Subdivision}
	if p.Latitude != nil && p.Longitude != nil {
		g.Latitude, g.Longitude = decimal(*p.Latitude), decimal(*p.Longitude)
	}
	if p.RadiusKM != nil {
		g.Radius = strconv.Itoa(*p.RadiusKM)
	}
	return g
}

func decimal(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
