// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/path"
)

const (
	askTrusts = "get endpointtrusts.bindings.fairlead.dev --namespace demo"
	goodKey   = "sha256/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
	otherKey  = "sha256/57DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
)

// seal has the BoundEndpoint say how it is sealed, the cluster pin goodKey, and the account announce
// the key.
func seal(f *fake, announced, sealed, conditionStatus, reason, message string) {
	f.t.Helper()
	f.replace(askBEP, `"endpointCount": 1,`, fmt.Sprintf(`"endpointCount": 1, "sealed": %q,`, sealed))
	if reason != "" {
		f.replace(askBEP, `"conditions": [`, fmt.Sprintf(`"conditions": [{"type": "Sealed", "status": %q, "reason": %q,
			"message": %q},`, conditionStatus, reason, message))
	}
	f.put(askTrusts, `{"items":[{"metadata":{"name":"apis","namespace":"demo"},"spec":{"endpoints":["a*"],"keys":["`+
		goodKey+`"]}},{"metadata":{"name":"web","namespace":"demo"},"spec":{"endpoints":["web"],"keys":["sha256/x"]}}]}`)
	e := account.Endpoint{ID: "ep-06gvigq0knnbvqpcfa72pab358", URL: "http://api.demo", Type: account.TypeAgent,
		Status: account.StatusOnline}
	e.SealKey = announced
	f.o.Account = &fakeAccount{id: "ac-06gvigotsuuraimaqdkqg65koo", endpoints: []account.Endpoint{e}}
}

func sealScenarios() []scenario {
	const sealedBy = "connections to http://api.demo are sealed: agents need one of these keys: 1"
	refused := func(reason, why string) func(*fake) {
		return func(f *fake) {
			seal(f, otherKey, "pinned", "False", reason, "forwarder one refused the last connection: The agent of "+
				"http://api.demo is not trusted by this cluster: "+why)
		}
	}
	carried := func(one, two string) func(*fake) {
		return func(f *fake) {
			seal(f, goodKey, "pinned", "True", "Pinned", sealedBy)
			for ask, paths := range map[string]string{askOne: one, askTwo: two} {
				f.replace(ask, `"ready": true,`, `"ready": true, "sealed_paths": `+paths+`,`)
			}
		}
	}
	return []scenario{
		{"sealed and spliced", "", carried(`{"raw": 12, "mux": 1}`, `{"raw": 0, "mux": 0}`)},
		{"sealed for the first time", "", carried(`{"raw": 0, "mux": 1}`, `{"raw": 0, "mux": 0}`)},
		{"sealed inside the multiplexer", "", carried(`{"raw": 0, "mux": 7, "paused": {"no_address": 1}}`,
			`{"raw": 3, "mux": 7, "paused": {"cut": 1}}`)},
		{"sealed, some inside the multiplexer", "", carried(`{"raw": 5, "mux": 7, "paused": {"another": 1}}`,
			`{"raw": 3, "mux": 7}`)},
		{"sealed", "", func(f *fake) { seal(f, goodKey, "pinned", "True", "Pinned", sealedBy) }},
		{"sealed, without an API key", "", func(f *fake) {
			seal(f, "", "authority", "True", "Authority", sealedBy)
			f.o.Account = nil
		}},
		{"sealed by a key that has changed", path.HopSeal, refused("KeyChanged",
			"its key is none of those that are pinned. Its key is "+otherKey+".")},
		{"sealed by another key than is pinned", path.HopSeal, func(f *fake) {
			seal(f, otherKey, "pinned", "True", "Pinned", sealedBy)
		}},
		{"sealed at first sight by a key that has changed", path.HopSeal, func(f *fake) {
			seal(f, otherKey, "first-sight", "False", "KeyChanged", "the service announces for http://api.demo the key "+
				otherKey+", which is not pinned")
			f.put(askTrusts, `{"items":[{"metadata":{"name":"apis","namespace":"demo"},"spec":{"endpoints":["a*"]},`+
				`"status":{"pins":{"http://api.demo":"`+goodKey+`"}}}]}`)
		}},
		{"sealed by an unknown authority", path.HopSeal, refused("KeyUnknown",
			"no authority that is trusted for it has signed its certificate. Its key is "+otherKey+".")},
		{"sealed, and the agent does not", path.HopSeal, func(f *fake) {
			seal(f, "", "authority", "False", "NotSealed", "connections to http://api.demo have to be sealed, and no "+
				"agent of it seals")
		}},
		{"sealed as objects contradict", path.HopSeal, func(f *fake) {
			seal(f, goodKey, "refused", "False", "Conflict", "connections to http://api.demo are refused: "+
				"EndpointTrust apis and web of namespace demo select it and trust different agents")
		}},
		{"sealed for another cluster", path.HopSeal, func(f *fake) { seal(f, goodKey, "no", "", "", "") }},
		{"sealed at another port", "", func(f *fake) {
			f.replace(askBEP, `"url": "http://api.demo"`,
				`"url": "http://api.demo"}, {"id": "ep-2", "url": "tcp://api.demo:5432"`)
			seal(f, "", "no,pinned", "True", "Pinned", "connections to tcp://api.demo:5432 are sealed")
		}},
		{"sealed, and forwarders lag behind", "", func(f *fake) {
			seal(f, goodKey, "pinned", "Unknown", "ForwardersBehind", "forwarder one does not report that it seals")
		}},
		{"seal preferred", "", func(f *fake) { seal(f, "", "preferred", "", "", "") }},
		{"sealed, trust forbidden", "", func(f *fake) {
			seal(f, goodKey, "pinned", "True", "Pinned", sealedBy)
			f.forbid(askTrusts)
		}},
	}
}

// TestCheckSeal also holds that one member of a pool whose key is not pinned is enough to disagree, which
// is no broken hop for the doctor: forwarders pass over it.
func TestCheckSeal(t *testing.T) {
	t.Parallel()
	pinned := func(keys ...string) func(*fake) {
		return func(f *fake) {
			seal(f, keys[0], "pinned", "True", "Pinned", "connections to http://api.demo are sealed")
			all := f.o.Account.(*fakeAccount)
			for _, key := range keys[1:] {
				e := all.endpoints[0]
				e.SealKey = key
				all.endpoints = append(all.endpoints, e)
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*fake)
		want   path.Status
	}{
		"pinned":              {pinned(goodKey), path.OK},
		"another":             {pinned(otherKey), path.Broken},
		"another in the pool": {pinned(goodKey, otherKey), path.Broken},
		"for another cluster": {func(f *fake) { seal(f, goodKey, "no", "", "", "") }, path.Broken},
		"plain":               {func(f *fake) { seal(f, "", "no", "", "", "") }, path.OK},
		"no such endpoint": {func(f *fake) {
			seal(f, "", "no", "", "", "")
			f.o.Account.(*fakeAccount).endpoints = nil
		}, path.Broken},
		"not to be read": {func(f *fake) {
			seal(f, goodKey, "pinned", "True", "Pinned", "sealed")
			f.forbid(askBEP)
		}, path.Unknown},
	} {
		f := recorded(t)
		c.change(f)
		if found, r := CheckSeal(t.Context(), f.o); len(r.Hops) != 1 || r.Hops[0].Status != c.want ||
			len(found) != len(f.o.Account.(*fakeAccount).endpoints) {
			t.Errorf("%s: %+v, want %s", name, r, c.want)
		}
	}
}
