// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/path"
	"github.com/fairlead-dev/fairlead/internal/service/traffic"
)

// mapPage is what flows where: what serves each endpoint, and who calls it.
type mapPage struct {
	Query      string
	BrokenOnly bool
	Filtered   bool
	Shown      int // endpoints
	Broken     int // endpoints with a broken hop
	More       bool
	Recorded   bool
	Missing    []string // replicas whose traffic is not counted
	Groups     []*mapGroup
	Replicas   []Replica
}

// mapGroup is the endpoints of a namespace, or of another binding than kubernetes.
type mapGroup struct {
	ID, Name string
	Rows     []mapRow
	Broken   int
	folded   bool // the quiet rows are apart from the others
	rateText
}

// unfolded is how many endpoints a map shows at once: of more, those that are quiet are folded.
const unfolded = 60

// Shown returns the rows that are always shown.
func (g *mapGroup) Shown() []mapRow { return g.where(false) }

// Quiet returns the rows that are shown on request.
func (g *mapGroup) Quiet() []mapRow { return g.where(true) }

func (g *mapGroup) where(quiet bool) (rows []mapRow) {
	for i := range g.Rows {
		if quiet == (g.folded && g.Rows[i].quiet()) {
			rows = append(rows, g.Rows[i])
		}
	}
	return rows
}

// mapRow is an endpoint with the hops on both sides.
type mapRow struct {
	account.Endpoint
	Upstream arrow
	Callers  []arrow
	rate     float64 // requests and connections per second
}

// Broken reports whether a hop is broken.
func (r mapRow) Broken() bool {
	return r.Upstream.Status == path.Broken || slices.ContainsFunc(r.Callers, func(a arrow) bool {
		return a.Status == path.Broken
	})
}

// quiet reports whether nothing passes and nothing is wrong.
func (r mapRow) quiet() bool {
	return r.rate == 0 && r.Upstream.Short == "" && !slices.ContainsFunc(r.Callers, func(a arrow) bool {
		return a.Short != ""
	})
}

// arrow is a hop with the traffic on it.
type arrow struct {
	hop
	Rate     string // "" = not known
	Diagnose string // the page that explains what is wrong; "" = nothing is
}

// Class returns the class of the arrow: its state, or that nothing passes.
func (a arrow) Class() string {
	if a.Status == path.OK && a.Rate == "" {
		return "idle"
	}
	return string(a.Status)
}

// Text returns what stands on the arrow.
func (a arrow) Text() string { return cmp.Or(a.Short, a.Rate, "idle") }

// mapHandlers serve the map, and the path of the calls of one endpoint.
type mapHandlers struct {
	endpoints account.Endpoints
	sessions  account.TunnelSessions
	backends  *backendReader
	operators *operatorReader
	traffic   Traffic  // traffic is nil where none is recorded.
	replicas  Replicas // replicas is nil where one server is alone.
}

// showMap shows the map.
func (h *mapHandlers) showMap(c *call) error {
	source, err := h.source(c)
	if err != nil {
		return err
	}
	found, err := h.endpoints.ListEndpoints(c.Context(), c.AccountID(), account.EndpointFilter{},
		account.Page{Limit: account.MaxPageLimit})
	if err != nil {
		return err
	}
	p := mapPage{Query: c.queryText("q"), BrokenOnly: c.queryEnum("state", "broken") != "", More: found.More,
		Recorded: source.recorded, Missing: source.coverage.Missing}
	p.Filtered = p.Query != "" || p.BrokenOnly
	groups := map[string]*mapGroup{}
	for i := range found.Endpoints {
		p.add(groups, source, &found.Endpoints[i])
	}
	for _, g := range groups {
		slices.SortFunc(g.Rows, func(a, b mapRow) int {
			return cmp.Or(strings.Compare(a.URL, b.URL), strings.Compare(a.ID, b.ID))
		})
		g.folded = p.Shown > unfolded && !p.Filtered
		p.Groups = append(p.Groups, g)
	}
	slices.SortFunc(p.Groups, func(a, b *mapGroup) int { return strings.Compare(a.ID, b.ID) })
	if h.replicas != nil {
		p.Replicas = h.replicas.Replicas()
	}
	return c.show(http.StatusOK, view{Page: "map", Title: "Map", Nav: "map", Live: "endpoints audit", Poll: true,
		Data: p})
}

// add adds an endpoint that passes the filter to its group.
func (p *mapPage) add(groups map[string]*mapGroup, source *pathSource, e *account.Endpoint) {
	row := source.row(e)
	if p.BrokenOnly && !row.Broken() || p.Query != "" && !row.contains(p.Query) {
		return
	}
	id, name := groupOf(e)
	g := groups[id]
	if g == nil {
		g = &mapGroup{ID: id, Name: name}
		groups[id] = g
	}
	rate := source.rates[traffic.Key(e.ID)]
	g.PerSecond += rate.PerSecond
	g.FailingPerSecond += rate.FailingPerSecond
	g.Rows = append(g.Rows, row)
	p.Shown++
	if row.Broken() {
		g.Broken++
		p.Broken++
	}
}

func (r mapRow) contains(part string) bool {
	texts := []string{r.URL, r.ID, r.Name, r.Description, r.Upstream.Node}
	for _, a := range r.Callers {
		texts = append(texts, a.Node)
	}
	return contains(part, texts...)
}

// row returns an endpoint with its arrows. What fails is on the arrow to the upstream.
func (p *pathSource) row(e *account.Endpoint) mapRow {
	rate := rateText{p.rates[traffic.Key(e.ID)]}
	text, diagnosis := "", Path+"endpoints/"+e.ID+"/path"
	switch {
	case !p.recorded:
		text = "up"
	case rate.PerSecond > 0:
		text = rate.Text()
	}
	arrowOf := func(h hop) arrow {
		a := arrow{hop: h, Rate: text}
		if h.Short != "" {
			a.Diagnose = diagnosis
		}
		return a
	}
	row := mapRow{Endpoint: *e, Upstream: arrowOf(p.upstream(e)), rate: rate.PerSecond}
	if failing, _ := p.requests(e); failing.Short != "" && row.Upstream.Status == path.OK {
		row.Upstream.Status, row.Upstream.Short, row.Upstream.Diagnose = failing.Status, failing.Short, diagnosis
	}
	for _, h := range p.callers(e) {
		row.Callers = append(row.Callers, arrowOf(h))
	}
	return row
}

var labelPattern = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

// groupOf returns the id of an endpoint's group on the page, by which groups are sorted, and its
// name: namespaces come first.
func groupOf(e *account.Endpoint) (id, name string) {
	binding := ""
	if len(e.Bindings) == 1 {
		binding = e.Bindings[0]
	}
	names := map[string]string{account.BindingPublic: "Public", account.BindingInternal: "Internal",
		account.BindingClusterset: "Exports of Services"}
	namespace := account.EndpointURL{Host: e.Host}.Namespace()
	switch {
	case names[binding] != "":
		return "of-" + binding, names[binding]
	case binding == account.BindingKubernetes && labelPattern.MatchString(namespace):
		return "in-" + namespace, "Namespace " + namespace
	}
	return "others", "Others"
}

// pathPage is the path of the calls of an endpoint, as far as the account knows it.
type pathPage struct {
	account.Endpoint
	Hops   []hop
	Doctor bool // `fairlead doctor` checks such endpoints
}

// showPath explains the hops of an endpoint.
func (h *mapHandlers) showPath(c *call) error {
	e, err := h.endpoints.Endpoint(c.Context(), c.AccountID(), c.ID())
	if err != nil {
		return err
	}
	source, err := h.source(c)
	if err != nil {
		return err
	}
	p := pathPage{Endpoint: *e, Hops: source.callers(e)}
	p.Hops = append(p.Hops, source.upstream(e))
	if requests, ok := source.requests(e); ok {
		p.Hops = append(p.Hops, requests)
	}
	p.Doctor = slices.Contains(e.Bindings, account.BindingKubernetes)
	return c.show(http.StatusOK, view{Page: "path", Title: "Path to " + e.URL, Nav: "map",
		Crumb: &link{"Map", Path + "map"}, Live: "endpoints audit", Poll: true, Data: &p})
}
