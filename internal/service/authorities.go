// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/service/pki"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

const (
	authoritiesInterval = time.Second
	maxReportedSessions = 10 // ids in a report
)

// authorities tells the clients of tunnels which authorities to trust while the service's own one is
// replaced, and the store how many do not know the next one.
type authorities struct {
	data     *data
	tunnels  *tunnel.Server
	serverID string // serverID is the replica's; "" for a service that is alone.
	log      *slog.Logger

	announced pki.Authorities
	reported  store.AuthorityReport
}

// run follows the authorities until ctx is done.
func (a *authorities) run(ctx context.Context) {
	for timer.Sleep(ctx, authoritiesInterval) {
		a.announce()
		a.report(ctx)
	}
}

// announce applies changed authorities: clients are told, and a TLS session is resumed only as long
// as the authority that has been trusted longest at its beginning is still trusted.
func (a *authorities) announce() {
	all := a.data.certs.Authorities()
	if all.Equal(a.announced) {
		return
	}
	a.announced = all
	var der [][]byte
	var fingerprints []string
	for _, c := range all.All() {
		der, fingerprints = append(der, c.Raw), append(fingerprints, trust.Fingerprint(c))
	}
	oldest := all.Current
	if all.Retiring != nil {
		oldest = all.Retiring
	}
	a.data.ticketKeys.SetScope(serviceListener, trust.Fingerprint(oldest))
	a.tunnels.SetAuthorities(der)
	a.log.Info("clients are told to trust these authorities", "ca_sha256", fingerprints)
}

// announceTo adds the authorities to answers of the API, whose clients have no session. One alone, too:
// they forget the one that was retired.
func (a *authorities) announceTo(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		trust.Announce(w.Header(), a.data.certs.Authorities().All())
		next.ServeHTTP(w, r)
	})
}

// report records which sessions have clients that do not know the next authority.
func (a *authorities) report(ctx context.Context) {
	if a.announced.Next == nil {
		return
	}
	untold := a.tunnels.Untold()
	now := store.AuthorityReport{ServerID: a.serverID, Next: trust.Fingerprint(a.announced.Next), Untold: len(untold)}
	for _, s := range untold[:min(len(untold), maxReportedSessions)] {
		now.Sessions = append(now.Sessions, s.ID())
	}
	slices.Sort(now.Sessions)
	if reflect.DeepEqual(now, a.reported) {
		return
	}
	if err := a.data.store.ReportAuthority(ctx, now); err != nil {
		a.log.Debug("recording who knows the next authority", "err", err) // the next look tries again
		return
	}
	a.reported = now
}
