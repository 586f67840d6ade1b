// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/path"
)

// endpointTrust is an EndpointTrust object.
type endpointTrust struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		Endpoints []string `json:"endpoints"`
		Ports     []int32  `json:"ports"`
		Keys      []string `json:"keys"`
	} `json:"spec"`
	Status struct {
		Pins map[string]string `json:"pins"` // Pins are the keys that were seen first, by URL.
	} `json:"status"`
}

// sealCheck checks whether the cluster requires a seal, and whom it trusts, beside the key that the
// service announces.
type sealCheck struct {
	*cluster
	account    *accountCheck
	forwarders *forwarders     // forwarders tell what carries sealed connections; nil = they were not asked.
	trusts     []endpointTrust // trusts select the URL.
	all        bool            // all announced keys have to be pinned; else one, as calls go to its agent.
}

// CheckSeal returns the endpoints that the account has at o.URL, and the hop seal: OK if the cluster pins
// all of their keys, or trusts authorities.
func CheckSeal(ctx context.Context, o Options) ([]account.Endpoint, path.Report) {
	w := newDiagnosis(ctx, o)
	p := w.newPathChecks(o.URL)
	p.op.find(ctx)
	h := p.account.checkEndpoint(ctx)
	c := &sealCheck{cluster: w.cluster, account: p.account, all: true}
	switch {
	case h.Status != path.OK:
	case p.op.boundErr != nil:
		h = refusedHop("BoundEndpoint "+o.URL.Host, p.op.boundErr)
	case c.required() == "" && len(c.announced()) == 0:
		h = path.OKf("the cluster requires no seal, and the service announces no key")
	default:
		h = c.check(ctx)
	}
	w.report.Add(h.Named(path.HopSeal))
	w.report.Conclude()
	return p.account.found, w.report
}

// condition returns the condition Sealed of the BoundEndpoint; its Status is empty if it is about
// another URL of the hostname.
func (c *sealCheck) condition() path.Condition {
	if in := c.account.op; in.bound != nil {
		if found := in.bound.Status.Conditions.Get("Sealed"); c.account.concernsURL(found.Message) {
			return found
		}
	}
	return path.Condition{}
}

// required returns how the BoundEndpoint shows that a seal is required, such as pinned; "" = it is
// not.
func (c *sealCheck) required() string {
	if c.account.op.bound == nil {
		return ""
	}
	kinds := strings.Split(c.account.op.bound.Status.Sealed, ",")
	without := slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return kind == "no" })
	if len(without) < len(kinds) && c.condition().Status == "" { // it is another URL that is sealed
		return ""
	}
	return strings.Join(without, ", ")
}

// announced returns the keys by which the URL's agents seal connections, as the account has them.
func (c *sealCheck) announced() (keys []string) {
	for _, e := range c.account.found {
		if e.SealKey != "" && !slices.Contains(keys, e.SealKey) {
			keys = append(keys, e.SealKey)
		}
	}
	return keys
}

// check compares what the cluster requires with what the service announces.
func (c *sealCheck) check(ctx context.Context) path.Hop {
	announced, required := c.announced(), c.required()
	said := "the service announces no key"
	switch {
	case len(announced) > 0:
		said = "the service announces the key " + strings.Join(announced, ", ")
	case c.account.found == nil:
		said = "after fairlead login, the key that the service announces is shown"
	}
	if required == "" {
		return path.Brokenf("set binding.sealed, or make an EndpointTrust that selects it (docs/secure/sealed.md)",
			"its agent serves sealed connections only, and this cluster does not seal them; %s", said)
	}
	pinned, unread := c.pinned(ctx)
	carriers, each := c.carriers()
	evidence := slices.Concat([]string{"sealed by: " + required, said}, unread, each)
	for _, key := range pinned {
		evidence = append(evidence, "the cluster pins the key "+key)
	}
	condition := c.condition()
	h := path.OKf("%s", joinNonEmpty("; ", condition.Message, carriers, said))
	others := slices.DeleteFunc(slices.Clone(announced), func(key string) bool { return slices.Contains(pinned, key) })
	switch {
	case condition.Status == "False":
		kind := "BoundEndpoint"
		if condition.Reason == "Conflict" { // a BoundEndpoint has it for Services, too
			kind = "EndpointTrust"
		}
		h = path.Brokenf(path.Remedy(kind, condition.Reason)+c.command(condition.Reason), "%s; %s",
			strings.TrimSuffix(condition.Message, "."), said)
	case len(pinned) > 0 && len(others) > 0 && (c.all || len(others) == len(announced)):
		h = path.Brokenf(path.Remedy("BoundEndpoint", keyChanged)+c.command(keyChanged),
			"the cluster pins %s; %s", strings.Join(pinned, ", "), said)
	case required == preferred && condition.Status == "":
		h = path.OKf("a seal is preferred: until the first sealed connection, they are plain while no agent seals; %s",
			said)
	case condition.Status == "":
		h = path.Unknownf("a seal is required (%s); %s", required, said)
	case condition.Status != "True":
		h = path.Unknownf("%s; %s", condition.Message, said)
	}
	return h.With(evidence...)
}

// pinned returns the keys that the EndpointTrust objects pin which select the URL, and why they could
// not be read.
func (c *sealCheck) pinned(ctx context.Context) (keys, unread []string) {
	target := endpointaccess.TargetOf(c.account.url.Host, c.account.url.Port)
	var objects list[endpointTrust]
	if _, err := c.get(ctx, &objects, endpointTrusts, "--namespace", target.Namespace); err != nil {
		return nil, []string{"the EndpointTrust objects cannot be looked at: " + err.message}
	}
	for _, o := range objects.Items {
		if endpointaccess.Selects(o.Spec.Endpoints, o.Spec.Ports, target) {
			c.trusts, keys = append(c.trusts, o), append(keys, o.Spec.Keys...)
			pin := o.Status.Pins[c.account.url.String()]
			if pin != "" && strings.Contains(c.required(), "first-sight") {
				keys = append(keys, pin)
			}
		}
	}
	return keys, nil
}

const (
	endpointTrusts = "endpointtrusts.bindings.fairlead.dev"
	keyChanged     = "KeyChanged" // keyChanged is a reason of the condition Sealed.
	preferred      = "preferred"  // preferred is a value of status.sealed.
)

// command returns the command that mends what the condition's reason names, after the remedy.
func (c *sealCheck) command(reason string) string {
	url := c.account.url
	switch {
	case reason == keyChanged && len(c.trusts) > 0 && len(c.trusts[0].Spec.Keys) == 0:
		return ":\n" + c.cluster.command("%s", path.ApprovePin(c.trusts[0].Metadata.Namespace,
			c.trusts[0].Metadata.Name, url.String()))
	case reason == keyChanged && len(c.trusts) > 0:
		return ":\n" + c.cluster.command("--namespace %s edit %s %s", c.trusts[0].Metadata.Namespace, endpointTrusts,
			c.trusts[0].Metadata.Name)
	case reason == "KeyUnknown", reason == "NameMismatch", reason == "Expired":
		return ":\nfairlead seal sign --url " + url.String() + " tls.csr"
	case reason == "NotSealed":
		return ":\n" + path.AgentCommand(url.Scheme, url.String(), "") + " --sealed FOLDER"
	}
	return ":\n" + c.cluster.command("--namespace %s get %s -o yaml", url.Namespace(), endpointTrusts)
}

// sealedPaths are what carries a forwarder's sealed connections towards the service.
type sealedPaths struct {
	Raw    int64          `json:"raw"`    // over connections of their own
	Mux    int64          `json:"mux"`    // inside those of the session
	Paused map[string]int `json:"paused"` // replicas of the service without raw connections, by reason
}

// whyInMux explains the reasons of tunnel.PairPause.
var whyInMux = map[string]string{
	"unsupported":        "the service is of an earlier version, or does not run on Linux",
	"websocket":          "WebSockets carry the session",
	"client_certificate": "forwarders show the service a client certificate",
	"no_address":         "a replica of the service has announced no address that forwarders reach (--replica-address)",
	"cut":                "something on the way cuts raw connections (next try after 6 hours)",
	"limit":              "the descriptors of the forwarder, or of the service for the account, allow no more",
	"failed":             "none can be made; the forwarders' logs have the error",
}

// carriers returns what carries the forwarders' sealed connections towards the service, as a sentence and
// for each forwarder; nothing where no forwarder has told it.
func (c *sealCheck) carriers() (sentence string, evidence []string) {
	if c.forwarders == nil {
		return "", nil
	}
	known, _ := c.forwarders.serving()
	var raw, all int64
	replicas, paused := 0, 0
	reasons := map[string]bool{}
	for _, f := range known {
		p := f.status.SealedPaths
		if p == nil { // The forwarder is of an earlier version.
			continue
		}
		raw, all, replicas = raw+p.Raw, all+p.Raw+p.Mux, replicas+max(1, len(f.status.Session.Legs))
		for why, n := range p.Paused {
			paused += n
			reasons[cmp.Or(whyInMux[why], why)] = true
		}
		evidence = append(evidence, fmt.Sprintf("%s: of its sealed connections, %d over a raw connection, %d "+
			"inside the multiplexer", f.pod.Metadata.Name, p.Raw, p.Mux))
	}
	switch {
	case evidence == nil:
		return "", nil
	case paused > 0:
		some := map[bool]string{true: "they", false: "some"}[paused >= replicas]
		sentence = fmt.Sprintf("%s run inside the multiplexer (%d of %d so far): %s", some, all-raw, all,
			strings.Join(slices.Sorted(maps.Keys(reasons)), "; "))
	case raw > 0:
		sentence = fmt.Sprintf("they are spliced over a raw connection (%d of %d so far), if the agent has one, too",
			raw, all)
	default:
		sentence = "the first runs inside the multiplexer, later ones are spliced over a raw connection"
	}
	return sentence, evidence
}
