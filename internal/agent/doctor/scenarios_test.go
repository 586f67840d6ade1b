// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os/exec"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/path"
)

// scenario is a cluster with something wrong, and the hop that must be named.
type scenario struct {
	name   string
	broken string // empty: nothing is
	change func(f *fake)
}

const noKindWords = `error: the server doesn't have a resource type "kubernetesoperators"`

func clusterScenarios() []scenario {
	return []scenario{
		{"all good", "", func(*fake) {}},
		{"context is passed on", "", func(f *fake) { f.o.Context, f.o.Kubeconfig = "prod", "/home/a/kube config" }},
		{"no kubectl", path.HopCluster, func(f *fake) {
			for _, a := range f.answers {
				a.err = &exec.Error{Name: "kubectl", Err: exec.ErrNotFound}
			}
		}},
		{"API server gone", path.HopCluster, func(f *fake) {
			f.refuse(askTarget,
				"The connection to the server 127.0.0.1:6443 was refused - did you specify the right host or port?")
		}},
		{"no such context", path.HopCluster, func(f *fake) {
			f.o.Context = "prdo"
			f.refuse(askTarget, `error: context "prdo" does not exist`)
		}},
		{"not logged in", path.HopCluster, func(f *fake) {
			f.refuse(askTarget, "error: You must be logged in to the server (Unauthorized)")
		}},
		{"kubectl hangs", path.HopCluster, func(f *fake) {
			f.answers[askContext].hang, f.answers[askTarget].hang, f.o.Timeout = true, true, 10*time.Millisecond
		}},
		{"junk instead of JSON", path.HopCluster, func(f *fake) { f.put(askTarget, "<html>login</html>") }},
		{"namespace missing", path.HopNamespace, func(f *fake) {
			f.none(askNS, askTarget)
			f.replace(askBEP, `"reason": "Projected",
      "status": "True"`, `"reason": "NamespaceNotFound",
      "status": "False"`)
			f.replace(askBEP, "Service demo/api leads to the forwarders",
				"namespace demo does not exist; the endpoint is projected when it appears")
		}},
		{"namespace terminating", path.HopNamespace, func(f *fake) { f.replace(askNS, `"Active"`, `"Terminating"`) }},
		{"namespaces forbidden", "", func(f *fake) { f.forbid(askNS) }},
		{"everything forbidden", "", func(f *fake) { f.forbid(askNS, askTarget, askOps, askBEP, askDNS) }},
	}
}

// projectBySlices changes the recording to projection by EndpointSlices.
func projectBySlices(f *fake) {
	f.replace(askTarget, `"type": "ExternalName"`, `"type": "ClusterIP", "clusterIP": "10.96.106.83"`)
	f.replace(askTarget, `"externalName": "ep-06gvigq0knnbvqpcfa72pab358.fairlead.svc.cluster.local",`, "")
	f.replace(askTarget, `"targetPort": 80`, `"targetPort": 22240`)
	f.replace(askBEP, `"clusterIP": "10.96.106.83",`, `"clusterIP": "10.96.106.83", "projection": "endpointSlice",`)
	f.replace(askSlices, `"targetRef"`, `"noTargetRef"`)
	f.answers[askTargetSlices] = f.answers[askSlices]
	f.answers[askAnyPods] = f.answers[askPods]
	delete(f.answers, askSlices)
	delete(f.answers, askUpstream)
}

func serviceScenarios() []scenario {
	return []scenario{
		{"projected by EndpointSlices", "", projectBySlices},
		{"EndpointSlices before a load balancer of pods", "", func(f *fake) {
			projectBySlices(f)
			f.replace(askTarget, `"bindings.fairlead.dev/place"`,
				`"alb.ingress.kubernetes.io/target-type": "ip", "bindings.fairlead.dev/place"`)
		}},
		{"EndpointSlices without forwarders", path.HopForwarders, func(f *fake) {
			projectBySlices(f)
			f.replace(askTargetSlices, "10.244.0.", "10.244.9.")
		}},
		{"foreign Service", path.HopService, func(f *fake) {
			f.put(askTarget,
				`{"metadata":{"name":"api","namespace":"demo","annotations":{"meta.helm.sh/release-name":"shop","meta.helm.sh/release-namespace":"demo"}},
				"spec":{"type":"ClusterIP","ports":[{"port":80}]}}`)
			f.replace(askBEP, `"reason": "Projected",
      "status": "True"`, `"reason": "Conflict",
      "status": "False"`)
			f.replace(askBEP, "Service demo/api leads to the forwarders",
				"Service demo/api belongs to the Helm release demo/shop and stays as it is")
		}},
		{"copied Service", path.HopService, func(f *fake) {
			f.replace(askTarget, `"bindings.fairlead.dev/place": "demo/api"`,
				`"bindings.fairlead.dev/place": "prod/api"`)
		}},
		{"Service of another hostname", path.HopService, func(f *fake) {
			f.replace(askTarget, `"bindings.fairlead.dev/hostname": "api.demo"`,
				`"bindings.fairlead.dev/hostname": "web.demo"`)
		}},
		{"quota exceeded", path.HopService, func(f *fake) {
			f.none(askTarget)
			f.replace(askBEP, `"reason": "Projected",
      "status": "True"`, `"reason": "QuotaExceeded",
      "status": "False"`)
			f.replace(askBEP, "Service demo/api leads to the forwarders",
				`creating Service demo/api: services \"api\" is forbidden: exceeded quota: none, requested: services=1, used: services=0, limited: services=0`)
		}},
		{"Service deleted, manager gone", path.HopService, func(f *fake) { f.none(askTarget, askManagers) }},
		{"type changed", path.HopService, func(f *fake) {
			f.replace(askTarget, `"type": "ExternalName"`, `"type": "ClusterIP"`)
		}},
		{"left over from an operator that is gone", path.HopOperator, func(f *fake) { f.none(askOps, askBEP, askUpstream) }},
		{"upstream Service missing", path.HopUpstreamService, func(f *fake) { f.none(askUpstream) }},
		{"upstream Service foreign", path.HopUpstreamService, func(f *fake) {
			f.replace(askUpstream, `"bindings.fairlead.dev/place": "fairlead/ep-06gvigq0knnbvqpcfa72pab358"`,
				`"x": "y"`)
		}},
		{"another port", path.HopEndpoint, func(f *fake) { f.o.URL = parse(f.t, "http://api.demo:8080") }},
		{"another scheme", "", func(f *fake) { f.o.URL = parse(f.t, "tcp://api.demo:80") }},
	}
}

func dnsScenarios() []scenario {
	return []scenario{
		{"DNS without servers", path.HopDNS, func(f *fake) { f.replace(askDNS, `"ready": true`, `"ready": false`) }},
		{"DNS elsewhere", "", func(f *fake) { f.none(askDNS) }},
		{"pod resolves", "", func(f *fake) {
			f.o.FromPod = "demo/web-0"
			f.put(execGetent,
				"10.96.106.83    STREAM ep-06gvigq0knnbvqpcfa72pab358.fairlead.svc.cluster.local\n10.96.106.83    "+
					"DGRAM\n")
		}},
		{"pod resolves by nslookup", "", func(f *fake) {
			f.o.FromPod = "demo/web-0"
			f.refuse(execGetent, lacksWords)
			f.put(execLookup,
				"Server:\t\t10.96.0.10\nAddress:\t10.96.0.10:53\n\napi.demo.svc.cluster.local\tcanonical name = "+
					"ep-…\nAddress: "+
					"10.96.106.83\n")
		}},
		{"pod resolves to something else", path.HopDNS, func(f *fake) {
			f.o.FromPod = "demo/web-0"
			f.put(execGetent, "192.0.2.7    STREAM api.demo\n")
		}},
		{"pod cannot resolve", path.HopDNS, func(f *fake) {
			f.o.FromPod = "demo/web-0"
			f.refuse(execGetent, "command terminated with exit code 2")
		}},
		{"pod has nothing to resolve with", "", func(f *fake) {
			f.o.FromPod = "demo/web-0"
			for _, ask := range []string{execGetent, execLookup, execPython, execBox} {
				f.refuse(ask, lacksWords)
			}
		}},
	}
}

const lacksWords = `error: Internal error occurred: error executing command in container: failed to exec in container: exec: "getent": executable file not found in $PATH`

func forwarderScenarios() []scenario {
	return []scenario{
		{"no forwarder", path.HopForwarders, func(f *fake) { f.none(askPods) }},
		{"forwarders crash", path.HopForwarders, func(f *fake) {
			f.replace(askPods, `"status": "True",
      "type": "Ready"`,
				`"status": "False", "reason": "ContainersNotReady", "message": "containers with unready status: [forwarder]",
      "type": "Ready"`)
			f.replace(askPods, `"phase": "Running"`,
				`"phase": "Running", "containerStatuses": [{"name": "forwarder", "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 20s restarting failed container"}}}]`)
		}},
		{"one forwarder of two", "", func(f *fake) {
			f.put(askPods, strings.Replace(f.answers[askPods].out, `"status": "True",
      "type": "Ready"`,
				`"status": "False", "reason": "ContainersNotReady", "message": "containers with unready status: [forwarder]",
      "type": "Ready"`, 1))
		}},
		{"EndpointSlices empty", path.HopForwarders, func(f *fake) { f.none(askSlices) }},
		{"port taken", path.HopListener, func(f *fake) {
			f.replace(askTwo, `"listening": true`,
				`"listening": false, "error": "listening on port 22240: listen tcp :22240: bind: address already in use"`)
		}},
		{"port unknown to a forwarder", path.HopListener, func(f *fake) {
			f.replace(askOne, `"port": 22240`, `"port": 22241`)
		}},
		{"no session with the edge", path.HopEdge, func(f *fake) {
			for _, ask := range []string{askOne, askTwo} {
				f.replace(ask, `"up": true`,
					`"up": false, "error": "dialing 10.99.0.2:18444: connect: connection refused"`)
			}
			f.replace(askOps, `"reason": "Online",
      "status": "True"`, `"reason": "Unreachable",
      "status": "False"`)
			f.replace(askOps, "the account's API answers",
				"the service at 10.99.0.2:18444 does not answer: dial tcp 10.99.0.2:18444: connect: connection refused")
		}},
	}
}

// forbiddenScenarios are those of a user who may not ask the forwarders for their status.
func forbiddenScenarios() []scenario {
	return []scenario{
		{"status forbidden", "", func(f *fake) { f.forbidProxy() }},
		{"status forbidden, listener failed", path.HopListener, func(f *fake) {
			f.forbidProxy()
			f.replace(askBEP, `"reason": "Online",
      "status": "True"`, `"reason": "ListenerFailed",
      "status": "False"`)
			f.replace(askBEP, "every URL has an endpoint online",
				"forwarder fairlead-operator-forwarder-two does not listen on port 22240: bind: address already in use")
		}},
		{"status forbidden, another port failed", "", func(f *fake) {
			f.forbidProxy()
			f.replace(askBEP, `"reason": "Online",
      "status": "True"`, `"reason": "ListenerFailed",
      "status": "False"`)
			f.replace(askBEP, "every URL has an endpoint online",
				"forwarder fairlead-operator-forwarder-two does not listen on port 2224: bind: address already in use")
		}},
		{"status forbidden, the operator reports sessions", "", func(f *fake) {
			f.forbidProxy()
			f.replace(askBEP, `"endpointCount": 1`, `"endpointCount": 1, "forwarders": "2/2"`)
			f.replace(askOps, `"conditions": [`,
				`"conditions": [{"type": "EdgeReachable", "status": "True", "reason": "Online", "message": "all forwarders have a session with the service's edge"},`)
		}},
		{"status forbidden, edge unreachable", path.HopEdge, func(f *fake) {
			f.forbidProxy()
			f.replace(askOps, `"conditions": [`,
				`"conditions": [{"type": "EdgeReachable", "status": "False", "reason": "Unreachable", "message": "0 of 2 forwarders have a session"},`)
		}},
	}
}

func upstreamScenarios() []scenario {
	return []scenario{
		{"upstream refused", path.HopUpstream, func(f *fake) {
			f.replace(askTwo, `"connections": 0`,
				`"connections": 1, "last_failure": {"at": "2026-11-20T14:05:02Z", "reason": "upstream", "message": "The agent of http://api.demo cannot reach its upstream."}`)
			f.account("ac-06gvigotsuuraimaqdkqg65koo",
				account.Endpoint{ID: "ep-06gvigq0knnbvqpcfa72pab358", Status: account.StatusOnline, Type: "agent",
					EndpointSettings: account.EndpointSettings{UpstreamURL: "http://localhost:8080"}})
		}},
		{"upstream speaks no HTTP", path.HopUpstream, func(f *fake) {
			f.replace(askTwo, `"connections": 0`,
				`"connections": 1, "last_failure": {"at": "2026-11-20T14:05:02Z", "reason": "upstream_broken", "message": "The upstream of http://api.demo broke off before it had answered, or its answer was not HTTP."}`)
		}},
		{"agent silent", path.HopUpstream, func(f *fake) {
			f.replace(askTwo, `"connections": 0`,
				`"connections": 1, "last_failure": {"at": "2026-11-20T14:05:02Z", "reason": "agent_silent", "message": "The agent of http://api.demo did not answer in time."}`)
		}},
		{"upstream recovered", "", func(f *fake) {
			f.replace(askTwo, `"connections": 0`,
				`"connections": 1, "last_failure": {"at": "2026-11-20T14:03:02Z", "reason": "upstream_refused", "message": "connection refused"}`)
		}},
		{"agent was away at the last call", "", func(f *fake) {
			f.replace(askTwo, `"connections": 0`,
				`"connections": 1, "last_failure": {"at": "2026-11-20T14:05:02Z", "reason": "offline", "message": "The endpoint http://api.demo is offline: its agent is not connected."}`)
		}},
		{"never called", "", func(f *fake) {
			f.o.Context = "staging"
			f.replace(askOne, `"connections": 3`, `"connections": 0`)
			f.replace(askOne, `"last_success": "2026-11-20T14:05:00Z"`, `"x": 0`)
		}},
		{"forwarder without history", "", func(f *fake) {
			f.replace(askOne, `"last_success": "2026-11-20T14:05:00Z"`, `"x": 0`)
			f.replace(askOne, `"connections": 3,`, ``)
			f.replace(askTwo, `"connections": 0,`, ``)
		}},
	}
}

func (f *fake) forbidProxy() {
	for _, ask := range []string{askOne, askTwo} {
		f.refuse(ask,
			`Error from server (Forbidden): pods "fairlead-operator-forwarder-one:8081" is forbidden: User "dev" cannot get resource "pods/proxy" in API group "" in the namespace "fairlead"`)
	}
}

func (f *fake) account(id string, endpoints ...account.Endpoint) {
	f.o.Account = &fakeAccount{id: id, endpoints: endpoints}
}

func operatorScenarios() []scenario {
	return []scenario{
		{"operator not installed", path.HopOperator, func(f *fake) {
			f.none(askTarget)
			f.refuse(askOps, noKindWords)
			f.refuse(askBEP, noKindWords)
		}},
		{"operators forbidden in all namespaces", "", func(f *fake) { f.forbid(askOps) }},
		{"operator namespace given", "", func(f *fake) { f.o.OperatorNamespace = "fairlead" }},
		{"two operators", path.HopEndpoint, func(f *fake) {
			f.none(askTarget, askBEP)
			f.replace(askOps, `"items": [`,
				`"items": [{"metadata": {"name": "other", "namespace": "elsewhere"}, "spec": {"bindingEnabled": false}, "status": {}},`)
		}},
		{"the other operator has it", "", func(f *fake) {
			f.replace(askOps, `"items": [`,
				`"items": [{"metadata": {"name": "other", "namespace": "elsewhere"}, "spec": {"bindingEnabled": true}, "status": {"conditions": [{"type": "Registered", "status": "False"}]}},`)
			f.replace(askBEP, `"items": [`,
				`"items": [{"metadata": {"name": "api.demo", "namespace": "elsewhere", "labels": {"bindings.fairlead.dev/installation": "0123"}}, "spec": {}, "status": {}},`)
		}},
		{"API key refused", path.HopOperator, func(f *fake) {
			f.none(askTarget, askBEP)
			f.replace(askOps, `"reason": "Registered",
      "status": "True"`, `"reason": "Unauthorized",
      "status": "False"`)
			f.replace(askOps, "the account knows this installation", "the API key is unknown")
		}},
		{"key of the cluster unknown", path.HopOperator, func(f *fake) {
			f.none(askTarget, askBEP)
			f.replace(askOps, `"reason": "Registered",
      "status": "True"`, `"reason": "UnknownKey",
      "status": "False"`)
			f.replace(askOps, "the account knows this installation", "no cluster of the account has a key with the kid x")
		}},
		{"account changed", path.HopOperator, func(f *fake) {
			f.replace(askOps, `"conditions": [`,
				`"conditions": [{"type": "AccountChanged", "status": "True", "reason": "AccountChanged", "message": "the API key is now of account ac-2; removals wait"},`)
		}},
		{"binding disabled", path.HopOperator, func(f *fake) {
			f.none(askTarget, askBEP)
			f.replace(askOps, `"bindingEnabled": true`, `"bindingEnabled": false`)
		}},
		{"manager crashes", path.HopOperator, func(f *fake) {
			f.replace(askManagers, `"status": "True",
      "type": "Ready"`, `"status": "False",
      "type": "Ready"`)
		}},
	}
}

func endpointScenarios() []scenario {
	return []scenario{
		{"no endpoint", path.HopEndpoint, func(f *fake) {
			f.none(askTarget, askBEP)
			f.replace(askOps, `"bindingEnabled": true`,
				`"bindingEnabled": true, "endpointSelector": "ep.hostname.endsWith('.prod')"`)
		}},
		{"no endpoint in the account", path.HopEndpoint, func(f *fake) {
			f.none(askTarget, askBEP)
			f.account("ac-06gvigotsuuraimaqdkqg65koo")
		}},
		{"selector leaves it out", path.HopEndpoint, func(f *fake) {
			f.none(askTarget, askBEP)
			f.replace(askOps, `"bindingEnabled": true`,
				`"bindingEnabled": true, "endpointSelector": "ep.hostname.endsWith('.prod')"`)
			f.account("ac-06gvigotsuuraimaqdkqg65koo", account.Endpoint{ID: "ep-1", Status: account.StatusOnline})
		}},
		{"no kubectl, and the agent offline", path.HopCluster, func(f *fake) {
			f.answers[askTarget].err = exec.ErrNotFound
			f.account("ac-1", account.Endpoint{ID: "ep-1", Status: account.StatusOffline})
		}},
		{"key of another account", "", func(f *fake) { f.account("ac-other") }},
		{"account refuses the key", "", func(f *fake) {
			f.o.Account = &fakeAccount{err: account.Errorf(account.CodeUnknownCredential, "the API key is unknown")}
		}},
		{"agent stopped", path.HopEndpoint, func(f *fake) {
			f.replace(askBEP, `"state": "Bound",
      "targetPort"`, `"state": "Bound", "removeAfter": "2026-11-20T14:05:30Z",
      "targetPort"`)
		}},
		{"released", path.HopEndpoint, func(f *fake) {
			f.none(askTarget)
			f.replace(askBEP, `"Bound"`, `"Released"`)
		}},
		{"agent offline", path.HopAgent, func(f *fake) { f.offline("no agent is connected for http://api.demo") }},
		{"agent of another URL offline", "", func(f *fake) {
			f.replace(askBEP, `"url": "http://api.demo"`,
				`"url": "http://api.demo"}, {"id": "ep-2", "url": "tcp://api.demo:5432"`)
			f.offline("no agent is connected for tcp://api.demo:5432")
		}},
		{"agent offline in the account", path.HopAgent, func(f *fake) {
			since := now.Add(-3 * time.Hour)
			f.account("", account.Endpoint{ID: "ep-06gvigq0knnbvqpcfa72pab358", Status: account.StatusOffline,
				OfflineSince: &since})
		}},
		{"terminal escapes", path.HopOperator, func(f *fake) {
			f.replace(askOps, `"reason": "Registered",
      "status": "True"`, `"reason": "Unauthorized",
      "status": "False"`)
			f.replace(askOps, "the account knows this installation", `\u001b[2Jgone\u0000 and a word`)
		}},
	}
}

func (f *fake) offline(message string) {
	f.t.Helper()
	f.replace(askBEP, `"reason": "Online",
      "status": "True"`, `"reason": "AgentOffline",
      "status": "False"`)
	f.replace(askBEP, "every URL has an endpoint online", message)
}
