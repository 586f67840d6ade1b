// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/traffic"
)

// hopState is the state of a hop, and the class of its mark.
type hopState string

// The states of a hop. Unknown: only the cluster knows.
const (
	hopOK      hopState = "ok"
	hopWarning hopState = "warning"
	hopBroken  hopState = "broken"
	hopUnknown hopState = "unknown"
)

// Status returns the class of the state's mark.
func (s hopState) Status() string {
	return map[hopState]string{hopOK: "online", hopWarning: "warning", hopBroken: "offline", hopUnknown: "unknown"}[s]
}

// hop is a step of the path of a call, as far as the account knows it. Names and findings are those
// of `fairlead doctor`.
type hop struct {
	Name    string // "agent", "backend", "operator", …
	State   hopState
	Short   string // what is wrong, in two or three words; "" = nothing
	Found   string
	Fix     string // "" = nothing to do
	Command string // a command that the fix needs; "" = none
	Node    string // name of the node at its end
	Href    string // the node's page; "" = none
	Detail  string // more about the node
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
	h := hop{Name: "agent", State: hopOK, Node: "no agent", Found: "An agent is connected."}
	if e.TunnelSession == nil || e.Status == account.StatusOffline {
		h.State, h.Short = hopBroken, "offline"
		h.Found = "No agent is connected for " + e.URL + p.since(e.OfflineSince) + "."
		h.Fix = "Start it again, or see why it cannot reach the service."
		if e.Owner != nil {
			h.Node = e.Owner.Namespace + "/" + e.Owner.Name
			h.Fix = "Look at the exporter of its cluster, and at the object " + h.Node + "."
			return h
		}
		h.Command = agentCommand(e)
		return h
	}
	id := e.TunnelSession.ID
	h.Node, h.Href = shortID(id), Path+"agents/"+id
	if agent, ok := p.agents[id]; ok {
		h.Node, h.Detail = agent.IP, agent.OS
	}
	return h
}

// agentCommand returns the command that starts an agent for the endpoint.
func agentCommand(e *account.Endpoint) string {
	scheme := "http"
	if e.Scheme == "tcp" {
		scheme = "tcp"
	}
	command := "fairlead " + scheme + " PORT --url " + e.URL
	if len(e.Bindings) == 1 && e.Bindings[0] != account.BindingKubernetes {
		command += " --binding " + e.Bindings[0]
	}
	return command
}

// since returns how long ago a time is, as the end of a sentence.
func (p *pathSource) since(at *time.Time) string {
	if at == nil {
		return ""
	}
	return ", since " + instant{*at, p.now}.Absolute()
}

func (p *pathSource) exporter(e *account.Endpoint) hop {
	h := hop{Name: "export", State: hopOK, Found: "A cluster exports the Service, and a pod of it is ready."}
	if e.Owner != nil {
		h.Node, h.Detail = e.Owner.Namespace+"/"+e.Owner.Name, "cluster "+e.Owner.Cluster
	}
	switch {
	case e.Status == account.StatusOffline:
		h.State, h.Short = hopBroken, "offline"
		h.Found = "No exporter announces the Service" + p.since(e.OfflineSince) + "."
		h.Fix = "Look at the exporter of its cluster."
	case !e.ServiceExport.Ready:
		h.State, h.Short = hopWarning, "not ready"
		h.Found, h.Fix = "None of the Service’s pods is ready.", "Look at the Service and its pods."
	}
	return h
}

func (p *pathSource) backend(e *account.Endpoint) hop {
	h := hop{Name: "backend", State: hopOK, Node: "traffic policy", Found: "Its traffic policy decides."}
	if e.BackendID == "" {
		return h
	}
	row, ok := p.backends[e.BackendID]
	h.Node, h.Href = shortID(e.BackendID), Path+"backends/"+e.BackendID
	if !ok {
		h.State, h.Short, h.Href = hopBroken, "backend is gone", ""
		h.Found = "There is no backend " + e.BackendID + "."
		h.Fix, h.Command = "Give the endpoint another backend.",
			"fairlead api endpoints update "+e.ID+" --backend-id ID"
		return h
	}
	h.Node, h.Detail, h.Found = row.Name(), kindName(row.Kind), "It forwards to the backend "+row.Name()+"."
	if row.FailedOver() {
		h.State, h.Short = hopWarning, "failed over"
		h.Found = fmt.Sprintf("Child %d of %d of the backend serves: those before it are down.",
			slices.Index(row.Children, row.Active)+1, len(row.Children))
		h.Fix = "Look at the children of the backend; traffic returns when the first is up again."
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
		return []hop{{Name: "edge", State: hopOK, Node: "Internet", Found: "Public clients reach the edge."}}
	case account.BindingInternal:
		return []hop{{Name: "edge", State: hopOK, Node: "traffic policies",
			Found: "Traffic policies of the account forward to it."}}
	case account.BindingClusterset:
		return []hop{{Name: "operator", State: hopUnknown, Node: "clusters that import it",
			Found: "The clusters know which of them import it."}}
	}
	var hops []hop
	for _, o := range p.operators {
		if o.problem == "" && !o.matches(e) {
			continue
		}
		hops = append(hops, p.operator(o))
	}
	if hops == nil {
		hops = []hop{{Name: "operator", State: hopWarning, Short: "not bound", Node: "no cluster",
			Found: "No operator of the account binds the endpoint.",
			Fix: "Connect a cluster, or change binding.endpointSelector of an operator so that it admits the " +
				"endpoint."}}
	}
	return hops
}

func (p *pathSource) operator(o bindingOperator) hop {
	h := hop{Name: "operator", State: hopOK, Node: o.cluster(), Href: Path + "kubernetes-operators/" + o.ID,
		Detail: o.Name(), Found: "The operator of " + o.cluster() + " is in touch and binds it."}
	switch {
	case o.problem != "":
		h.State, h.Short = hopBroken, "selector broken"
		h.Found = "The selector of the operator of " + o.cluster() + " cannot be applied: " + o.problem + "."
		h.Fix = "Correct binding.endpointSelector in the values of its chart."
	case o.Silent:
		h.State, h.Short = hopBroken, "silent"
		h.Found = "The operator of " + o.cluster() + " has not been in touch" + p.since(&o.LastSeenAt) + "."
		h.Fix = "Look at its manager, and at the way from the cluster to the service."
	}
	return h
}

// requests returns the hop of what passed in the last minute; false without a recording.
func (p *pathSource) requests(e *account.Endpoint) (hop, bool) {
	if !p.recorded {
		return hop{}, false
	}
	rate := rateText{p.rates[traffic.Key(e.ID)]}
	h := hop{Name: "upstream", State: hopOK, Node: "requests", Href: Path + "endpoints/" + e.ID + "/traffic",
		Found: "In the last minute " + rate.Text() + " passed, and none failed."}
	switch {
	case rate.PerSecond == 0:
		h.State, h.Found = hopUnknown, "In the last minute nothing passed."
	case rate.FailingPerSecond > 0:
		h.State, h.Short = hopWarning, rate.FailingText()+" failing"
		if rate.FailingPerSecond >= rate.PerSecond/2 {
			h.State = hopBroken
		}
		h.Found = "In the last minute " + rate.Text() + " passed, and " + rate.FailingText() + " failed."
		h.Fix, h.Href = "Look at the failing requests.", h.Href+"?requests=failing"
	}
	return h, true
}
