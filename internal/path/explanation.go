// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package path

import "slices"

// Kinds of objects with conditions. The conditions of CloudEndpoints are those of AgentEndpoints.
const (
	boundEndpoint      = "BoundEndpoint"
	kubernetesOperator = "KubernetesOperator"
	endpointAccess     = "EndpointAccess"
	endpointTrust      = "EndpointTrust"
	agentEndpoint      = "AgentEndpoint"
	serviceExport      = "ServiceExport"
)

// Explanation explains a condition of a kind of objects, or a reason that conditions have. Its
// sentences may have code between backticks and paths of pages of docs; docs/fix/conditions.md is
// generated from them.
type Explanation struct {
	Kind, Name string
	Meaning    string // what is so while the condition is True, or what the reason means
	Remedy     string // empty for a condition
}

// Explanations returns the conditions and reasons of all kinds.
func Explanations() []Explanation { return slices.Clone(explanations) }

// otherRemedies are the remedies for reasons that have no explanation.
var otherRemedies = map[string]string{
	boundEndpoint:      "look at the manager's log; it tries again",
	kubernetesOperator: "give the release an API key of the account that may register operators (credentials.apiKey)",
	agentEndpoint:      "look at the exporter's log; it tries again",
	serviceExport:      "change what the message names; the exporter tries again",
}

// Remedy returns the remedy for a reason of a condition that is a problem.
func Remedy(kind, reason string) string {
	for _, e := range explanations {
		if e.Kind == kind && e.Name == reason && e.Remedy != "" {
			return e.Remedy
		}
	}
	return otherRemedies[kind]
}

var explanations = []Explanation{
	{boundEndpoint, "ServicesReady", "both Services, or the Service and its EndpointSlices, are as they should be",
		""},
	{boundEndpoint, "Reachable", "every forwarder listens, one at least has a session with the service's edge, " +
		"and every URL has an endpoint online", ""},
	{boundEndpoint, "Ready", "ServicesReady and Reachable are True: a pod that calls the hostname reaches the " +
		"endpoint's agent", ""},
	{boundEndpoint, "Sealed", "connections are sealed from the forwarder to the agent, and every forwarder enforces " +
		"it; False: calls are refused. Absent where nothing requires a seal", ""},
	{boundEndpoint, "Ready", "a pod that calls the hostname reaches the endpoint's agent", "nothing"},
	{boundEndpoint, "Authority", "agents need a certificate of the owner's authority", "nothing"},
	{boundEndpoint, "Pinned", "agents need one of the keys that an EndpointTrust names", "nothing"},
	{boundEndpoint, "FirstSight", "agents need the key that was seen first, which the service chose: for " +
		"demonstrations", "nothing, or give the EndpointTrust authorities or keys"},
	{boundEndpoint, "NotPinned", "the key that is seen first is to be trusted, and none is pinned: no agent is " +
		"online (`Unknown`), or agents announce different keys; connections are refused", "start the agent, or " +
		"give the keys that you know in `spec.keys` of the EndpointTrust"},
	{boundEndpoint, "KeyUnknown", "no trusted authority has signed the certificate of what answered; the message " +
		"has its key", "compare the key with the agent's screen: if it is the agent's, sign its request with " +
		"`fairlead seal sign`; if not, something else has answered"},
	{boundEndpoint, "KeyChanged", "the key of what answered, or that the service announces, is none of those that " +
		"are pinned; the message has it", "compare the key with the agent's screen: if it is the agent's, put " +
		"it into the EndpointTrust (`spec.keys`, or in place of its pin); if not, something else has answered"},
	{boundEndpoint, "NameMismatch", "the certificate of what answered names another account or other endpoints",
		"sign the agent's request for this URL with `fairlead seal sign`; compare `binding.sealAccount`"},
	{boundEndpoint, "Expired", "the agent's certificate has ended, or is not valid yet", "sign the agent's " +
		"request again with `fairlead seal sign`; compare clocks"},
	{boundEndpoint, "NotSealed", "connections have to be sealed, and no agent seals them", "start the agent with " +
		"`--sealed`"},
	{boundEndpoint, "InvalidAuthority", "the EndpointTrust that selects the endpoint cannot be read; connections " +
		"are refused", "see the condition Accepted of the EndpointTrust that the message names"},
	{boundEndpoint, "AccountMissing", "an EndpointTrust selects the endpoint, and the chart does not say which " +
		"account agents' certificates must name; connections are refused", "set `binding.sealAccount`"},
	{boundEndpoint, "ForwardersBehind", "a forwarder does not report that it seals connections as the " +
		"EndpointTrust objects say; the message names it", "see its log; one of an earlier version seals nothing"},
	{boundEndpoint, "ForwardersUnknown", "no forwarder reports its status", "see `EdgeReachable` of the " +
		"KubernetesOperator"},
	{boundEndpoint, "Projected", "the Services are as they should be", "nothing"},
	{boundEndpoint, "Online", "the forwarders listen, and every URL has an endpoint online", "nothing"},
	{boundEndpoint, "ClusterSet", "all is well: the hostname has a third part, the id of a cluster that exports " +
		"the Service, and the ServiceImport leads to its target ports instead of Services of its own", "nothing"},
	{boundEndpoint, "NamespaceNotFound", "the second part of the hostname names no namespace of this cluster",
		"create the namespace, and the endpoint projects at that moment"},
	{boundEndpoint, "NamespaceTerminating", "the namespace is being deleted",
		"wait; it projects when a new one appears"},
	{boundEndpoint, "NamespaceForbidden", "the operator may not read or write Services there, or a listed " +
		"namespace does not exist; asked again every 30 s", "give the operator the rights that the message names"},
	{boundEndpoint, "NamespaceNotAllowed", "denied, not listed or not consenting: see which namespaces get " +
		"Services (docs/run/namespaces.md); the operator's own namespace never gets any",
		"choose another URL, or allow the namespace in the chart's values"},
	{boundEndpoint, "Conflict", "a Service (or EndpointSlice) of that name exists and is not ours, or is a copy " +
		"of one of ours; the message names its owner. Of `Sealed`: EndpointTrust objects that trust different agents " +
		"select the endpoint",
		"delete or rename the other Service, or choose another URL; the name is taken over once it has been free " +
			"for a minute. Of `Sealed`: give the objects that the message names the same authorities or keys"},
	{boundEndpoint, "PortsExhausted", "no free target port is left in the forwarders' range",
		"remove endpoints, or widen the forwarders' port range"},
	{boundEndpoint, "InvalidEndpoint", "the API server refused the Service; the message holds its sentence",
		"change the URL"},
	{boundEndpoint, "ClusterIPExhausted", "the cluster has no free ClusterIP",
		"remove Services, or widen the cluster's service range"},
	{boundEndpoint, "QuotaExceeded", "a ResourceQuota of the namespace is used up",
		"raise the ResourceQuota that the message names"},
	{boundEndpoint, "AdmissionDenied", "an admission webhook or policy refused the Service or EndpointSlice; the " +
		"message holds its sentence", "ask the owner of the admission policy that the message names"},
	{boundEndpoint, "AdmissionChanged", "an admission webhook or policy changes the fields of a Service or " +
		"EndpointSlice that the message names, whenever the manager writes them; if only labels, annotations or " +
		"owners are concerned, calls work and the condition stays True. Tried again after 1 min, then less and less " +
		"often, and when the object changes",
		"exempt objects with the label `app.kubernetes.io/managed-by=fairlead-operator` from the webhook or policy"},
	{boundEndpoint, "NetworkPolicyFailed", "the NetworkPolicies of its ports could not be written, and its " +
		"Services wait for them; the message holds the API server's sentence, or names a policy of another owner " +
		"in their place", "see what the message says; delete or rename that policy"},
	{boundEndpoint, "AnchorMissing", "both the Role (ClusterRole) and the RoleBinding (ClusterRoleBinding) " +
		"`…-anchor`, which own what the operator makes, were deleted",
		"run helm upgrade for the release: it puts back the Role or ClusterRole that the message names"},
	{boundEndpoint, "ServiceTerminating", "a Service of ours is being deleted and something holds it, such as a " +
		"finalizer", "remove what holds the Service that the message names, such as a finalizer"},
	{boundEndpoint, "APIError", "the API server failed in a way that none of the above names; it is tried again",
		"look at the message when it stays"},
	{boundEndpoint, "AgentOffline", "no agent holds the endpoint; Services stay, calls get a 503",
		"start the agent"},
	{boundEndpoint, "EndpointRemoved", "the account has no endpoint for the URL any longer; Services stay for " +
		"`binding.removalDelay`, or while a mass of removals is held", "nothing, or start the agent again"},
	{boundEndpoint, "ListenerFailed", "a forwarder does not listen on a target port; the message names pod, port " +
		"and error", "free the port, or see why that forwarder lags behind"},
	{boundEndpoint, "ServiceUnreachable", "no forwarder is running, or none has a session with the service's " +
		"edge; `Unknown`: the account has not been read, or the forwarders have not reported yet",
		"see the KubernetesOperator's conditions"},
	{boundEndpoint, "Released", "the endpoint is gone; Services are deleted, ports rest for a minute", "nothing"},
	{boundEndpoint, "TopLevelDomain", "(an event, once for each namespace) the namespace is named like a " +
		"top-level domain, `com` or `dev`: pods' resolvers try the cluster's domains first, so a lookup of " +
		"`example.com` finds Service `example` there",
		"rename the namespace, or let pods ask for `example.com.` with a dot at its end"},

	{kubernetesOperator, "Registered", "the account knows this installation, and no other release runs in its " +
		"namespace", ""},
	{kubernetesOperator, "APIReachable", "the account API answers, and changes of endpoints arrive. False: what " +
		"is projected stays. It is told within 75 s, also of an API that accepts connections and never answers", ""},
	{kubernetesOperator, "EdgeReachable", "every forwarder has a session with the service's edge; else the " +
		"message has the tunnel's sentence", ""},
	{kubernetesOperator, "ServiceImportsReady", "Services of other clusters are imported as they should be; else " +
		"the message names one that is not, with one of these reasons or of a BoundEndpoint's. Absent without " +
		"`clusterset.enabled`", ""},
	{kubernetesOperator, "NetworkPoliciesWritten", "the forwarders' NetworkPolicies are written; else forwarders " +
		"without pod identity deny what an EndpointAccess selects. Absent without `networkPolicy.enabled`", ""},
	{kubernetesOperator, "KeysKnown", "the service knows the keys with which the cluster signs the pods' tokens, " +
		"and will when they change. Absent where the pods present secrets", ""},
	{kubernetesOperator, "AccountChanged", "the endpoints are listed by another account, or by another store of " +
		"the same account, than recorded; nothing is removed", ""},
	{kubernetesOperator, "RemovalsHeld", "a mass removal waits for a second list", ""},
	{kubernetesOperator, "Registered", "the account knows this installation", "nothing"},
	{kubernetesOperator, "Unauthorized", "the account refused the API key; the message holds its sentence",
		"give the release an API key of the account that may register operators (credentials.apiKey)"},
	{kubernetesOperator, "LimitReached", "the account has as many operators as it may have",
		"delete the account's operators that are gone: fairlead api kubernetes-operators"},
	{kubernetesOperator, "Rejected", "the account refused the registration; the message holds its sentence",
		"change the chart's value that the message names"},
	{kubernetesOperator, "SecondRelease", "another release runs in this namespace, and this one is inactive until " +
		"that one is removed", "install each release in a namespace of its own"},
	{kubernetesOperator, "Unreachable", "the service did not answer within 10 s",
		"see that fairlead-server runs, and that pods reach `api.url`"},
	{kubernetesOperator, "BadAnswer", "something else than the account's API answered: a proxy's page, or 404",
		"see that `api.url` is the service's base URL"},
	{kubernetesOperator, "Unavailable", "the service answered that it cannot serve now: 5xx, 429",
		"look at the service; the manager goes on trying"},
	{kubernetesOperator, "WatchFailed", "heartbeats are answered, but endpoints could be neither listed nor " +
		"watched for 20 s; the message holds why", "see whether a proxy between cuts or holds long answers"},
	{kubernetesOperator, "ClusterSetUnknown", "(of a condition that is True) the server is of a version before " +
		"`clusterset.enabled`: nothing is imported from other clusters, imports that exist stay as they are, and " +
		"everything else works; asked again every 5 minutes",
		"update the server, or set `clusterset.enabled=false`"},
	{kubernetesOperator, "AccountRecorded", "the endpoints are listed by the account and the store that are " +
		"recorded", "nothing"},
	{kubernetesOperator, "NothingHeld", "no removal waits", "nothing"},
	{kubernetesOperator, "AccountChanged", "the lists come from another account than the recorded one",
		"if that is meant, name its id in `binding.acceptAccount`; else give back the credentials"},
	{kubernetesOperator, "StoreChanged", "the lists come from another store of the account than the recorded one",
		"if that is meant, name its id in `binding.acceptAccount`; else give back the credentials"},
	{kubernetesOperator, "MassRemoval", "more than half of the hostnames lost their endpoints at once",
		"wait for the second list, or bring the endpoints back"},
	{kubernetesOperator, "CRDsMissing", "the cluster does not serve ServiceImports of " +
		"`multicluster.x-k8s.io/v1beta1`",
		"install the CRDs with the command in the message; the manager picks them up within seconds"},
	{kubernetesOperator, "ImportsForbidden", "the manager may not read ServiceImports",
		"upgrade the chart together with the image"},
	{kubernetesOperator, "KeysKnown", "the service knows the cluster's keys", "nothing"},
	{kubernetesOperator, "UnknownKey", "the cluster signs tokens with a key that the service does not know",
		"add it: `kubectl get --raw /openid/v1/jwks | fairlead api clusters update ID --add-jwks-file -`"},
	{kubernetesOperator, "KeysMissing", "the service lacks a key of the cluster and takes none from it: its " +
		"`key_source` is `manual`, it is too old, or it refuses; the message holds which",
		"add the keys by hand, as the message says; update the server"},
	{kubernetesOperator, "KeysUnreadable", "the manager may not read the cluster's keys",
		"bind the ClusterRole `system:service-account-issuer-discovery` to its ServiceAccount, as Kubernetes does " +
			"for all"},
	{kubernetesOperator, "NotWritten", "the forwarders' NetworkPolicies could not be written; the message holds why",
		"as for `NetworkPolicyFailed` of a BoundEndpoint"},

	{endpointAccess, "Accepted", "all selectors are valid", ""},
	{endpointAccess, "ForwardersEnforce", "every forwarder enforces this generation", ""},
	{endpointAccess, "NetworkPoliciesWritten", "the NetworkPolicies of what it selects are written", ""},
	{endpointAccess, "Accepted", "all selectors are valid", "nothing"},
	{endpointAccess, "Enforced", "every forwarder enforces this generation", "nothing"},
	{endpointAccess, "Written", "the NetworkPolicies of what the object selects are written", "nothing"},
	{endpointAccess, "InvalidSelector", "a selector of a peer is not valid, and the peer allows no pod; the " +
		"message names it", "mend the selector"},
	{endpointAccess, "PodIdentityDisabled", "forwarders do not know which pod calls, and deny every call of what " +
		"the object selects", "set `forwarder.podIdentity.enabled`"},
	{endpointAccess, "NetworkPoliciesDecide", "forwarders do not know which pod calls, and leave it to " +
		"NetworkPolicies, which know no ServiceAccounts", "nothing, or set `forwarder.podIdentity.enabled`"},
	{endpointAccess, "ForwardersBehind", "a forwarder does not report that it enforces this generation; the " +
		"message names it", "see its log; one of an earlier version enforces nothing"},
	{endpointAccess, "ForwardersUnknown", "no forwarder reports its status",
		"see `EdgeReachable` of the KubernetesOperator"},
	{endpointAccess, "NotWritten", "a NetworkPolicy of what the object selects could not be written; the message " +
		"holds why", "as for `NetworkPolicyFailed` of a BoundEndpoint"},
	{endpointAccess, "Disabled", "no NetworkPolicies are written: `networkPolicy.enabled` is false",
		"nothing, or set it"},

	{endpointTrust, "Accepted", "its authorities and keys can be read, and no other object contradicts it; the " +
		"message says whom it trusts", ""},
	{endpointTrust, "ForwardersEnforce", "every forwarder enforces this generation", ""},
	{endpointTrust, "Accepted", "the object counts", "nothing"},
	{endpointTrust, "Conflict", "other objects of the namespace, which the message names, can select the same " +
		"endpoints and trust other authorities or keys; connections to such endpoints are refused",
		"give them the same authorities or keys, or other endpoints"},
	{endpointTrust, "InvalidAuthority", "an authority or a key cannot be read; connections to what the object " +
		"selects are refused; the message names it", "give the PEM text of authorities' certificates, and keys as " +
		"agents print them"},
	{endpointTrust, "AccountMissing", "the chart does not say which account agents' certificates must name; " +
		"connections to what the object selects are refused", "set `binding.sealAccount`"},
	{endpointTrust, "Enforced", "every forwarder enforces this generation", "nothing"},
	{endpointTrust, "ForwardersBehind", "a forwarder does not report that it enforces this generation; the " +
		"message names it", "see its log; one of an earlier version seals nothing"},
	{endpointTrust, "ForwardersUnknown", "no forwarder reports its status",
		"see `EdgeReachable` of the KubernetesOperator"},

	{agentEndpoint, "Accepted", "the spec is valid, and what it names exists and may be used", ""},
	{agentEndpoint, "Bound", "the account has the endpoint; of an AgentEndpoint, the exporter holds it", ""},
	{agentEndpoint, "UpstreamReady", "the Service has ready endpoints", ""},
	{agentEndpoint, "Ready", "the other conditions are True; else it has the reason and the sentence of the " +
		"first that is not", ""},
	{agentEndpoint, "Accepted", "the spec is valid, and what it names exists and may be used", "nothing"},
	{agentEndpoint, "Bound", "the account has the endpoint", "nothing"},
	{agentEndpoint, "Ready", "all other conditions are True", "nothing"},
	{agentEndpoint, "UpstreamNotFound", "the Service of `spec.upstream.url` does not exist; the endpoint is " +
		"bound, and callers get a 502",
		"make the Service, or correct spec.upstream.url"},
	{agentEndpoint, "UpstreamNotAllowed", "the upstream is no Service (an address, a name of another domain), one " +
		"of another namespace, or one without a selector, whose EndpointSlices a user writes",
		"name a Service of the object's own namespace that has a selector, or set the chart's " +
			"export.crossNamespace"},
	{agentEndpoint, "UnsupportedService", "the Service is an ExternalName, has no ports, or no TCP port; callers " +
		"get a 502",
		"name a Service with a TCP port that is no ExternalName"},
	{agentEndpoint, "PortNotFound", "the Service has no TCP port of that number; the message lists those it " +
		"has; callers get a 502",
		"give a port of the Service in spec.upstream.url"},
	{agentEndpoint, "PolicyInvalid", "the traffic policy is wrong; an endpoint that is bound keeps the former " +
		"one. Or it has a secret (client_secret, a password, a fixed Authorization header): give the endpoint the " +
		"binding `internal`, and let an administrator make the endpoint before it, whose policy has the secret " +
		"and ends with `forward-internal` (`fairlead api endpoints create`)",
		"correct the traffic policy at the place that the message names"},
	{agentEndpoint, "PolicyNotFound", "the ConfigMap of `spec.trafficPolicy.targetRef`, or its key `policy.yaml`, " +
		"does not exist", "make the ConfigMap with the key policy.yaml, or correct spec.trafficPolicy.targetRef"},
	{agentEndpoint, "URLNotAllowed", "the URL is none of its binding, or its second label is not the object's " +
		"namespace",
		"give a URL whose second part is the object's namespace, or add a pattern to the chart's export.urls"},
	{agentEndpoint, "SealUnavailable", "`spec.sealed` cannot be fulfilled: the exporters have no certificate, or " +
		"none that names the URL, or the object has another binding than kubernetes; the endpoint is not bound, " +
		"and never served in the clear",
		"name a Secret in the chart's export.sealSecret, whose certificate names the URL (fairlead seal sign --url)"},
	{agentEndpoint, "URLTaken", "another endpoint has the URL; the message names its owner",
		"choose another URL, or set poolingEnabled on both endpoints"},
	{agentEndpoint, "Forbidden", "the exporter's API key does not admit the object or the URL",
		"give the exporter's API key the rule that the message names"},
	{agentEndpoint, "Rejected", "the account refused the endpoint; the message holds its sentence",
		"change what the message names"},
	{agentEndpoint, "LimitReached", "the account has as many endpoints as it may have",
		"delete endpoints of the account that are not needed, or raise the limit that the message names"},
	{agentEndpoint, "Unreachable", "the exporter has no session with the service; the message holds why",
		"see that fairlead-server runs, that the exporters' pods reach it, and that it takes their API key"},
	{agentEndpoint, "Pending", "the endpoint is being bound", "wait a moment, and look again"},
	{agentEndpoint, "NoReadyEndpoints", "the Service has no ready endpoint: callers get a 502", SeePods},

	{serviceExport, "NoService", "there is no Service of that namespace and name",
		"make the Service: it has the namespace and name of the ServiceExport"},
	{serviceExport, "InvalidServiceType", "the Service is an ExternalName, which is not exported",
		"export a Service that is no ExternalName"},
	{serviceExport, "Pending", "it is on its way to the account, or the exporters have no session with the " +
		"service: the message says which", "wait a moment, and look again"},
}
