// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/path"
	"github.com/fairlead-dev/fairlead/internal/service/traffic"
)

// hop is a step of the path of a call, as far as the account knows it.
type hop struct {
	path.Hop
	Short      string // what is wrong, in two or three words; "" = nothing
	Node       string // name of the node at its end
	Href       string // the node's page; "" = none
	NodeDetail string // more about the node
}

// Mark returns the class of the mark of the hop's status.
func (h hop) Mark() string {
	return cmp.Or(map[path.Status]string{path.OK: "online", path.Broken: "offline"}[h.Status], string(h.Status))
}

// set sets what is wrong.
func (h *hop) set(status path.Status, short, fix, format string, args ...any) {
	h.Status, h.Short, h.Fix, h.Detail = status, short, fix, fmt.Sprintf(format, args...)
}

// pathSource is what an account has that paths consist of.
type pathSource struct {
	now       time.Time
	agents    map[string]account.TunnelSession
	backends  map[string]backendRow
	operators []bindingOperator
	rates     map[traffic.Key]traffic.Rate
	coverage  traffic.Coverage
	recorded  bool
}

// source reads what the account has.
func (h *mapHandlers) source(c *call) (*pathSource, error) {
	p := &pathSource{now: c.now(), backends: map[string]backendRow{}, recorded: h.traffic != nil}
	var err error
	if p.agents, err = agentsByID(c, h.sessions); err != nil {
		return nil, err
	}
	for _, kind := range account.BackendKinds() {
		page, _, err := h.backends.store.ListBackends(c.Context(), c.AccountID(), kind,
			account.Page{Limit: account.MaxPageLimit})
		if err != nil {
			return nil, err
		}
		rows, err := h.backends.rows(c, page...)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			p.backends[row.ID] = row
		}
	}
	if p.operators, err = h.operators.binding(c); err != nil {
		return nil, err
	}
	slices.SortFunc(p.operators, func(a, b bindingOperator) int { return strings.Compare(a.cluster(), b.cluster()) })
	if p.recorded {
		p.rates, p.coverage = h.traffic.Rates(c.Context(), c.AccountID())
	}
	return p, nil
}

// upstream returns the hop from the service to what serves the endpoint.
func (p *pathSource) upstream(e *account.Endpoint) hop {
	switch {
	case e.ServiceExport != nil:
		return p.exporter(e)
	case e.Type == account.TypeCloud:
		return p.backend(e)
	}
	h := hop{Hop: path.OKf("an agent is connected").Named(path.HopAgent), Node: "no agent"}
	if e.TunnelSession == nil || e.Status == account.StatusOffline {
		h.set(path.Broken, "offline", path.StartAgain+":\n"+agentCommand(e), "%s%s", unserved(e),
			p.since(e.OfflineSince))
		if e.Owner != nil {
			h.Node = ownerOf(e)
			h.Fix = path.SeeExporters + ":\nfairlead doctor agentendpoint/" + h.Node + " --context CLUSTER"
		}
		return h
	}
	id := e.TunnelSession.ID
	h.Node, h.Href = shortID(id), Path+"agents/"+id
	if agent, ok := p.agents[id]; ok {
		h.Node, h.NodeDetail = agent.IP, agent.OS
	}
	return h
}

// unserved says that nothing serves an endpoint that is offline.
func unserved(e *account.Endpoint) string {
	if e.Owner != nil && e.Owner.Kind == account.KindServiceExport {
		return fmt.Sprintf(path.NoExporter, ownerOf(e))
	}
	return fmt.Sprintf(path.NoAgent, e.URL)
}

// ownerOf returns the namespace and name of the object that an endpoint is of, "" without one.
func ownerOf(e *account.Endpoint) string {
	if e.Owner == nil {
		return ""
	}
	return e.Owner.Namespace + "/" + e.Owner.Name
}

// agentCommand returns the command that starts an agent for the endpoint.
func agentCommand(e *account.Endpoint) string {
	scheme, binding := "http", ""
	if e.Scheme == "tcp" {
		scheme = "tcp"
	}
	if len(e.Bindings) == 1 && e.Bindings[0] != account.BindingKubernetes {
		binding = e.Bindings[0]
	}
	return path.AgentCommand(scheme, e.URL, binding)
}

// since returns how long ago a time is, as the end of a sentence.
func (p *pathSource) since(at *time.Time) string {
	if at == nil {
		return ""
	}
	return ", since " + instant{*at, p.now}.Absolute()
}

func (p *pathSource) exporter(e *account.Endpoint) hop {
	h := hop{Hop: path.OKf("a cluster exports the Service, and a pod of it is ready").Named(path.HopExporter),
		Node: ownerOf(e)}
	if e.Owner != nil {
		h.NodeDetail = "cluster " + e.Owner.Cluster
	}
	look := ":\nfairlead doctor serviceexport/" + h.Node + " --context CLUSTER"
	switch {
	case e.Status == account.StatusOffline:
		h.set(path.Broken, "offline", path.SeeExporters+look, "%s%s", unserved(e), p.since(e.OfflineSince))
	case !e.ServiceExport.Ready:
		h.set(path.Warning, "not ready", path.SeePods+look, path.NoReadyEndpoint, h.Node)
	}
	return h
}

func (p *pathSource) backend(e *account.Endpoint) hop {
	h := hop{Hop: path.OKf("its traffic policy decides").Named(path.HopBackend), Node: "traffic policy"}
	if e.BackendID == "" {
		return h
	}
	row, ok := p.backends[e.BackendID]
	h.Node, h.Href = shortID(e.BackendID), Path+"backends/"+e.BackendID
	if !ok {
		h.Href = ""
		h.set(path.Broken, "backend is gone",
			"give the endpoint another backend:\nfairlead api endpoints update "+e.ID+" --backend-id ID",
			"there is no backend %s", e.BackendID)
		return h
	}
	h.Node, h.NodeDetail, h.Detail = row.Name(), kindName(row.Kind), "it forwards to the backend "+row.Name()
	if row.FailedOver() {
		h.set(path.Warning, "failed over",
			"look at the children of the backend; traffic returns when the first is up again",
			"%s of the backend serves: those before it are down", row.serving())
	}
	return h
}

// callers returns the hops from those who call the endpoint to the service.
func (p *pathSource) callers(e *account.Endpoint) []hop {
	binding := ""
	if len(e.Bindings) == 1 {
		binding = e.Bindings[0]
	}
	switch binding {
	case account.BindingPublic:
		return []hop{{Hop: path.OKf("public clients reach the edge").Named(path.HopCallers), Node: "Internet"}}
	case account.BindingInternal:
		return []hop{{Hop: path.OKf("traffic policies of the account forward to it").Named(path.HopCallers),
			Node: "traffic policies"}}
	case account.BindingClusterset:
		return []hop{{Hop: path.Unknownf("the clusters know which of them import it").Named(path.HopServiceImport),
			Node: "clusters that import it"}}
	}
	var hops []hop
	for _, o := range p.operators {
		if o.problem == "" && !o.matches(e) {
			continue
		}
		hops = append(hops, p.operator(o))
	}
	if hops == nil {
		h := hop{Hop: path.Hop{Name: path.HopOperator}, Node: "no cluster"}
		h.set(path.Warning, "not bound", "connect a cluster, or "+path.AdmitEndpoint,
			"no operator of the account binds the endpoint")
		hops = []hop{h}
	}
	return hops
}

func (p *pathSource) operator(o bindingOperator) hop {
	h := hop{Hop: path.OKf("the operator of %s is in touch and binds it", o.cluster()).Named(path.HopOperator),
		Node: o.cluster(), Href: Path + "kubernetes-operators/" + o.ID, NodeDetail: o.Name()}
	switch {
	case o.problem != "":
		h.set(path.Broken, "selector broken", "correct binding.endpointSelector in the values of its chart",
			"the selector of the operator of %s cannot be applied: %s", o.cluster(), o.problem)
	case o.Silent:
		h.set(path.Broken, "silent", path.ReachService, "the operator of %s has not been in touch%s", o.cluster(),
			p.since(&o.LastSeenAt))
	}
	return h
}

// requests returns the hop of what passed in the last minute; false without a recording.
func (p *pathSource) requests(e *account.Endpoint) (hop, bool) {
	if !p.recorded {
		return hop{}, false
	}
	rate := rateText{p.rates[traffic.Key(e.ID)]}
	h := hop{Hop: path.OKf("%s, and none failed", rate.passed()).Named(path.HopUpstream), Node: "requests",
		Href: Path + "endpoints/" + e.ID + "/traffic"}
	switch {
	case rate.PerSecond == 0:
		h.Status, h.Detail = path.Unknown, "in the last minute nothing passed"
	case rate.FailingPerSecond > 0:
		h.Href += "?requests=failing"
		h.set(path.Warning, rate.FailingText()+" failing", "look at the failing requests", "%s", rate.failed())
		if rate.FailingPerSecond >= rate.PerSecond/2 {
			h.Status = path.Broken
		}
	}
	return h, true
}
