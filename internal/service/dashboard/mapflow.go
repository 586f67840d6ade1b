// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"html/template"
	"slices"

	"github.com/fairlead-dev/fairlead/internal/path"
	"github.com/fairlead-dev/fairlead/internal/service/dashboard/chart"
)

// columnRows is how many nodes a column of the picture has at most.
const columnRows = 14

// classes of links, the one that matters most last.
var flowClasses = []string{"idle", "ok", "unknown", string(path.Warning), string(path.Broken)}

// column collects the nodes of a column of the picture.
type column struct {
	weights map[string]float64
	index   map[string]int
	nodes   []chart.FlowNode
}

func newColumn() *column { return &column{weights: map[string]float64{}} }

// add adds to the weight of a node. Broken ones weigh more than any rate.
func (c *column) add(name, class string, rate float64) {
	if class == string(path.Broken) {
		rate = 1e12
	}
	c.weights[name] += rate
}

// number gives the nodes with the most weight their places, and all others the last one.
func (c *column) number() {
	names := make([]string, 0, len(c.weights))
	for name := range c.weights {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(c.weights[b], c.weights[a]), cmp.Compare(a, b))
	})
	if len(names) > columnRows {
		slices.Sort(names[:columnRows-1])
	} else {
		slices.Sort(names)
	}
	c.index = map[string]int{}
	for i, name := range names {
		if len(names) > columnRows && i >= columnRows-1 {
			c.index[name] = columnRows - 1
			continue
		}
		c.index[name], c.nodes = i, append(c.nodes, chart.FlowNode{Name: name})
	}
	if rest := len(names) - columnRows; rest > 0 {
		c.nodes = append(c.nodes, chart.FlowNode{Name: thousands(rest+1) + " others"})
	}
}

// Flow returns the picture of the map: agents and backends, groups, callers. It is empty for a
// single group, which is its own picture.
func (p mapPage) Flow() template.HTML {
	if len(p.Groups) < 2 {
		return ""
	}
	left, middle, right := newColumn(), newColumn(), newColumn()
	p.eachLink(func(g *mapGroup, upstream, caller *arrow, rate float64) {
		left.add(upstream.Node, upstream.Class(), rate)
		middle.add(g.Name, "", rate)
		right.add(caller.Node, caller.Class(), rate)
	})
	for _, c := range []*column{left, middle, right} {
		c.number()
	}
	for i := range middle.nodes {
		for _, g := range p.Groups {
			if g.Name == middle.nodes[i].Name {
				middle.nodes[i].Note = thousands(len(g.Rows))
			}
		}
	}
	first, second := links{}, links{}
	p.eachLink(func(g *mapGroup, upstream, caller *arrow, rate float64) {
		at := middle.index[g.Name]
		first.add(left.index[upstream.Node], at, upstream.Class(), rate)
		second.add(at, right.index[caller.Node], caller.Class(), rate)
	})
	return chart.Flow{Columns: [3][]chart.FlowNode{left.nodes, middle.nodes, right.nodes},
		Links: [2][]chart.FlowLink{first.sorted(), second.sorted()}}.SVG()
}

// eachLink calls f for each caller of each endpoint, with its share of the endpoint's rate.
func (p mapPage) eachLink(f func(g *mapGroup, upstream, caller *arrow, rate float64)) {
	for _, g := range p.Groups {
		for k := range g.Rows {
			row := &g.Rows[k]
			for j := range row.Callers {
				f(g, &row.Upstream, &row.Callers[j], row.rate/float64(len(row.Callers)))
			}
		}
	}
}

// links are links of the picture by their ends.
type links map[[2]int]*chart.FlowLink

// add adds to the weight of a link, which has the class of the worst.
func (l links) add(from, to int, class string, rate float64) {
	at := l[[2]int{from, to}]
	if at == nil {
		at = &chart.FlowLink{From: from, To: to, Class: class}
		l[[2]int{from, to}] = at
	}
	at.Weight += rate
	if slices.Index(flowClasses, class) > slices.Index(flowClasses, at.Class) {
		at.Class = class
	}
}

// sorted returns the links, the worst last, which are drawn above the others.
func (l links) sorted() []chart.FlowLink {
	all := make([]chart.FlowLink, 0, len(l))
	for _, link := range l {
		all = append(all, *link)
	}
	slices.SortFunc(all, func(a, b chart.FlowLink) int {
		return cmp.Or(slices.Index(flowClasses, a.Class)-slices.Index(flowClasses, b.Class), a.From-b.From, a.To-b.To)
	})
	return all
}
