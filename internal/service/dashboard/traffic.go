// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/traffic"
)

// Traffic is what the service remembers of the traffic that it carried. Results cover all replicas
// but those that their Coverage names.
type Traffic interface {
	Series(ctx context.Context, accountID string, k traffic.Key, w traffic.Window) (traffic.Series, traffic.Coverage)
	// Recent returns the latest requests of an endpoint, the newest first.
	Recent(
		ctx context.Context, accountID, endpointID string, failingOnly bool, limit int,
	) ([]traffic.Request, traffic.Coverage)
	// Rates returns the rates of the last minute, of what had traffic.
	Rates(ctx context.Context, accountID string) (map[traffic.Key]traffic.Rate, traffic.Coverage)
	// LoginFailures returns logins that failed, the newest first.
	LoginFailures(ctx context.Context, accountID string, limit int) ([]traffic.LoginFailure, traffic.Coverage)
}

const (
	busiestShown  = 20
	requestsShown = 100
)

// pageVariant is a link to a variant of a page.
type pageVariant struct {
	Text, Href string
	Current    bool
}

// trafficPage is the traffic of an account, an endpoint or a backend.
type trafficPage struct {
	Recorded bool // the server records traffic
	Windows  []pageVariant
	Coverage traffic.Coverage
	Late     bool // the recording began within the window
	Partial  bool // it began later with some replicas, within the window
	Quiet    bool // nothing passed in the window
	Charts   []figure

	Busiest  []busyEndpoint // for an account
	Requests *requestList   // for an endpoint
}

// busyEndpoint is an endpoint with traffic in the last minute. Endpoint is nil for the sum of
// all others.
type busyEndpoint struct {
	Endpoint *account.Endpoint
	rateText
}

// requestList is the latest requests of an endpoint.
type requestList struct {
	Filters []pageVariant
	Failing bool // the failing ones only
	TCP     bool
	Rows    []traffic.Request
}

// trafficHandlers serve the pages of traffic.
type trafficHandlers struct {
	traffic   Traffic // traffic is nil where none is recorded.
	endpoints account.Endpoints
	backends  *backendReader
}

// ofAccount shows the traffic of the account, and of which endpoints it is now.
func (h *trafficHandlers) ofAccount(c *call) error {
	p := h.page(c, traffic.OfAccount, "")
	if p.Recorded {
		if err := h.addBusiest(c, p); err != nil {
			return err
		}
	}
	return c.show(http.StatusOK, view{Page: "traffic", Title: "Traffic", Nav: "traffic", Live: "endpoints audit",
		Poll: true, Data: p})
}

// addBusiest adds the endpoints with the highest rates, and the sum of all others.
func (h *trafficHandlers) addBusiest(c *call, p *trafficPage) error {
	rates, _ := h.traffic.Rates(c.Context(), c.AccountID())
	keys := slices.SortedFunc(maps.Keys(rates), func(a, b traffic.Key) int {
		return cmp.Or(cmp.Compare(rates[b].PerSecond, rates[a].PerSecond), cmp.Compare(a, b))
	})
	others := rates[traffic.OfOthers]
	for _, key := range keys {
		if !strings.HasPrefix(string(key), account.PrefixEndpoint+"-") {
			continue
		}
		if len(p.Busiest) == busiestShown {
			others.PerSecond += rates[key].PerSecond
			others.FailingPerSecond += rates[key].FailingPerSecond
			continue
		}
		e, err := h.endpoints.Endpoint(c.Context(), c.AccountID(), string(key))
		if account.CodeOf(err) == account.CodeNotFound { // deleted since
			continue
		}
		if err != nil {
			return err
		}
		p.Busiest = append(p.Busiest, busyEndpoint{e, rateText{rates[key]}})
	}
	if others.PerSecond > 0 {
		p.Busiest = append(p.Busiest, busyEndpoint{rateText: rateText{others}})
	}
	return nil
}

// ofEndpoint shows the traffic of an endpoint and its latest requests.
func (h *trafficHandlers) ofEndpoint(c *call) error {
	e, err := h.endpoints.Endpoint(c.Context(), c.AccountID(), c.ID())
	if err != nil {
		return err
	}
	p := h.page(c, traffic.Key(e.ID), e.Scheme)
	if p.Recorded {
		failing := c.queryEnum("requests", "failing") != ""
		list := &requestList{Failing: failing, TCP: e.Scheme == "tcp", Filters: []pageVariant{
			{"All", c.variant("requests", ""), !failing}, {"Failing", c.variant("requests", "failing"), failing}}}
		list.Rows, _ = h.traffic.Recent(c.Context(), c.AccountID(), e.ID, failing, requestsShown)
		p.Requests = list
	}
	return c.show(http.StatusOK, view{Page: "traffic", Title: "Traffic of " + e.URL, Nav: "traffic",
		Crumb: &link{e.URL, Path + "endpoints/" + e.ID}, Live: "endpoints", Poll: true, Data: p})
}

// ofBackend shows the traffic that a backend got.
func (h *trafficHandlers) ofBackend(c *call) error {
	b, err := h.backends.named(c)
	if err != nil {
		return err
	}
	name := backendRow{Backend: *b}.Name()
	return c.show(http.StatusOK, view{Page: "traffic", Title: "Traffic of " + name, Nav: "traffic",
		Crumb: &link{name, Path + "backends/" + b.ID}, Live: "audit", Poll: true,
		Data: h.page(c, traffic.Key(b.ID), "")})
}

// page returns the charts of a key in the window of the query. A scheme "tcp" has no
// requests, so no answers.
func (h *trafficHandlers) page(c *call, key traffic.Key, scheme string) *trafficPage {
	window := traffic.Hour
	if c.queryEnum("window", "day") != "" {
		window = traffic.Day
	}
	p := &trafficPage{Recorded: h.traffic != nil, Windows: []pageVariant{
		{"Last hour", c.variant("window", ""), window == traffic.Hour},
		{"Last day", c.variant("window", "day"), window == traffic.Day}}}
	if !p.Recorded {
		return p
	}
	series, coverage := h.traffic.Series(c.Context(), c.AccountID(), key, window)
	p.Coverage = coverage
	p.Late = coverage.Since.After(series.Start)
	p.Partial = coverage.Complete.After(series.Start) && coverage.Complete.Sub(coverage.Since) > series.Step
	p.Quiet = !slices.ContainsFunc(series.Points, func(at traffic.Point) bool {
		return at.Requests+at.Connections+at.BytesIn+at.BytesOut+at.Open > 0
	})
	p.Charts = figures(series, coverage.Since, scheme)
	return p
}

// pointValues returns what f makes of each point that has data, NaN for the others.
func pointValues(series traffic.Series, since time.Time, f func(*traffic.Point) float64) []float64 {
	all := make([]float64, len(series.Points))
	for i := range series.Points {
		at := series.Start.Add(time.Duration(i) * series.Step)
		if all[i] = math.NaN(); !since.IsZero() && !at.Before(since) {
			all[i] = f(&series.Points[i])
		}
	}
	return all
}
