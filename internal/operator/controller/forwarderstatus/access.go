// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarderstatus

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// accessLine is which EndpointAccess or EndpointTrust objects a forwarder enforces.
type accessLine struct {
	PodIdentity     bool `json:"pod_identity"`
	NetworkPolicies bool `json:"network_policies"` // it leaves the decision to NetworkPolicies
	Complete        bool `json:"complete"`         // the objects were read
	// Policies are the digests of the namespaces' objects, as endpointaccess.Digest returns them.
	Policies map[string]string `json:"policies"`
}

// DeniedCalls are calls of one caller that one or several forwarders denied.
type DeniedCalls struct {
	Hostname string    `json:"hostname"`
	Port     int       `json:"port"`
	Caller   string    `json:"caller"` // NAMESPACE/NAME of a pod, or an address
	Count    int64     `json:"count"`
	LastTime time.Time `json:"last_time"`
}

// Enforcement is how many forwarders enforce the objects of a kind in a namespace.
type Enforcement struct {
	// Known is false until every forwarder has reported once.
	Known bool
	// Forwarders is how many run. Enforcing of them enforce the objects in their generations,
	// WithoutPodIdentity of them do not know which pod calls and deny all, and LeftToNetwork of them
	// leave the decision to NetworkPolicies that are written for the objects, and deny until then.
	Forwarders, Enforcing, WithoutPodIdentity, LeftToNetwork int
	// Behind is the name of a pod that does not enforce them; empty if all do.
	Behind string
}

// Enforcement returns the forwarders' state for a namespace whose EndpointAccess objects have the
// digest.
func (r *Reader) Enforcement(namespace, digest string) Enforcement {
	return r.enforcement(namespace, digest, func(f *forwarder) *accessLine { return f.access })
}

// TrustEnforcement does the same for EndpointTrust objects, which need no pod identity.
func (r *Reader) TrustEnforcement(namespace, digest string) Enforcement {
	e := r.enforcement(namespace, digest, func(f *forwarder) *accessLine { return f.trust })
	e.Enforcing, e.WithoutPodIdentity = e.Enforcing+e.WithoutPodIdentity, 0
	return e
}

func (r *Reader) enforcement(namespace, digest string, of func(*forwarder) *accessLine) Enforcement {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := Enforcement{Known: r.synced && (r.counts.running > 0 || r.counts.pending == 0), Forwarders: r.counts.running}
	for _, f := range r.sorted() {
		switch l := of(f); {
		case !f.pod.Ready:
		case !f.reporting || l == nil || !l.Complete || l.Policies[namespace] != digest:
			e.Behind = cmp.Or(e.Behind, f.pod.Name)
		case l.NetworkPolicies:
			e.LeftToNetwork++
		case !l.PodIdentity:
			e.WithoutPodIdentity++
		default:
			e.Enforcing++
		}
	}
	return e
}

// NetworkPoliciesReliedOn reports whether forwarders leave the decision to NetworkPolicies, or may do
// so: some have not reported yet.
func (r *Reader) NetworkPoliciesReliedOn() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.byUID {
		if f.reporting && f.access != nil && f.access.NetworkPolicies {
			return true
		}
	}
	return !r.synced || r.counts.pending > 0
}

// Denied returns what forwarders denied at the hostnames of a namespace, the latest first.
func (r *Reader) Denied(namespace string) []DeniedCalls {
	r.mu.Lock()
	defer r.mu.Unlock()
	type key struct{ hostname, caller string }
	byCaller := map[key]DeniedCalls{}
	for _, f := range r.byUID {
		for _, d := range f.denied {
			_, rest, _ := strings.Cut(d.Hostname, ".")
			if rest != namespace && !strings.HasPrefix(rest, namespace+".") {
				continue
			}
			sum := byCaller[key{d.Hostname, d.Caller}]
			d.Count += sum.Count
			if sum.LastTime.After(d.LastTime) {
				d.LastTime = sum.LastTime
			}
			byCaller[key{d.Hostname, d.Caller}] = d
		}
	}
	all := make([]DeniedCalls, 0, len(byCaller))
	for _, d := range byCaller {
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b DeniedCalls) int {
		return cmp.Or(b.LastTime.Compare(a.LastTime), cmp.Compare(a.Hostname, b.Hostname),
			cmp.Compare(a.Caller, b.Caller))
	})
	return all
}

// SealedKeys returns keys of agents with which connections to a namespace's URLs were sealed, of URLs
// about which that is to be recorded.
func (r *Reader) SealedKeys(namespace string) map[account.EndpointURL]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := map[account.EndpointURL]string{}
	for _, f := range r.byUID {
		for _, p := range f.ports {
			if u, err := account.ParseForwardedURL(p.sealedURL); err == nil && u.Namespace() == namespace {
				keys[u] = p.key
			}
		}
	}
	return keys
}

// maxDenied is how many denied callers are kept of one forwarder, more than any reports.
const maxDenied = 256

// applyAccess applies what a line reports of EndpointAccess and EndpointTrust, and returns whether
// that is a change.
func (f *forwarder) applyAccess(l *line, first bool) bool {
	if first {
		f.access, f.trust, f.denied = nil, nil, nil
	}
	if l.Access != nil {
		f.access = l.Access
	}
	if l.Trust != nil {
		f.trust = l.Trust
	}
	if l.Denied != nil {
		f.denied = l.Denied[:min(len(l.Denied), maxDenied)]
		for i := range f.denied {
			f.denied[i].Hostname, f.denied[i].Caller = truncate(f.denied[i].Hostname), truncate(f.denied[i].Caller)
		}
	}
	sealed := slices.ContainsFunc(l.Listeners, func(l listenerLine) bool { return l.SealKey != "" })
	return first || sealed || l.Access != nil || l.Trust != nil || l.Denied != nil
}
