// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"

	"github.com/fairlead-dev/fairlead/internal/path"
)

// restrict makes an EndpointAccess select api, with these peers as JSON, for a call from demo/web-0.
func (f *fake) restrict(from string) {
	f.o.FromPod = "demo/web-0"
	f.put(execGetent, "10.96.106.83    STREAM api.demo\n")
	f.put(askAccess, fmt.Sprintf(`{"items":[{"metadata":{"name":"api","namespace":"demo","uid":"u","generation":2},`+
		`"spec":{"endpoints":["a*"],"from":[%s]}},{"metadata":{"name":"web","namespace":"demo","uid":"v"},`+
		`"spec":{"endpoints":["web"]}}]}`, from))
}

// enforce makes both forwarders report what they enforce.
func (f *fake) enforce(access string) {
	for _, ask := range []string{askOne, askTwo} {
		f.replace(ask, `"ready": true,`, `"ready": true, "access": `+access+`,`)
	}
}

const knowsPods = `{"pod_identity": true, "default": "allow", "complete": true}`

// accessScenarios are those of EndpointAccess objects and a calling pod.
func accessScenarios() []scenario {
	return []scenario{
		{"access allowed by a label", "", func(f *fake) {
			f.enforce(knowsPods)
			f.restrict(`{"podSelector":{"matchLabels":{"app":"job"}}},{"podSelector":{"matchLabels":{"app":"web"}}}`)
		}},
		{"access denied", path.HopAccess, func(f *fake) {
			f.enforce(knowsPods)
			f.restrict(`{"podSelector":{"matchLabels":{"app":"web"}},"serviceAccounts":["other"]}`)
		}},
		{"access of no peer", path.HopAccess, func(f *fake) { f.enforce(knowsPods); f.restrict("") }},
		{"access of the host network", path.HopAccess, func(f *fake) {
			f.enforce(knowsPods)
			f.restrict(`{"podSelector":{}}`)
			f.replace(askCaller, `"spec":{`, `"spec":{"hostNetwork":true,`)
		}},
		{"access not restricted", "", func(f *fake) {
			f.enforce(knowsPods)
			f.restrict("")
			f.replace(askAccess, `["a*"]`, `["b*"]`)
		}},
		{"access denied by default", path.HopAccess, func(f *fake) {
			f.enforce(`{"pod_identity": true, "default": "deny", "complete": true}`)
			f.restrict("")
			f.none(askAccess)
		}},
		{"access without pod identity", path.HopAccess, func(f *fake) {
			f.enforce(`{"pod_identity": false, "default": "allow", "complete": true}`)
			f.restrict(`{"podSelector":{}}`)
		}},
		{"access left to NetworkPolicies", "", func(f *fake) {
			f.enforce(`{"network_policies": true, "default": "allow", "complete": true}`)
			f.restrict(`{"serviceAccounts":["other"]}`)
		}},
		{"access of a pod that is gone", "", func(f *fake) {
			f.enforce(knowsPods)
			f.restrict(`{"podSelector":{}}`)
			f.none(askCaller)
		}},
		{"access with forwarders of an older release", "", func(f *fake) { f.restrict("") }},
		{"access objects forbidden", "", func(f *fake) { f.restrict(""); f.forbid(askAccess) }},
		{"access without status of forwarders", path.HopAccess, func(f *fake) { f.restrict(""); f.forbidProxy() }},
	}
}
