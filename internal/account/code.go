// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"cmp"
	"slices"
)

// Code identifies a kind of failure for programs and people. Codes are stable: they are never
// re-used.
type Code string

// The codes. Codes describes them.
const (
	CodeNoCredential      Code = "ERR_FL_1001"
	CodeUnknownCredential Code = "ERR_FL_1002"
	CodeWrongKind         Code = "ERR_FL_1003"
	CodeExpired           Code = "ERR_FL_1004"
	CodeUnknownKey        Code = "ERR_FL_1005"
	CodeVersionHeader     Code = "ERR_FL_1010"
	CodeScope             Code = "ERR_FL_1020"
	CodeNoRoute           Code = "ERR_FL_1030"
	CodeMethod            Code = "ERR_FL_1031"
	CodeInvalid           Code = "ERR_FL_1040"
	CodeMalformed         Code = "ERR_FL_1041"
	CodeTooLarge          Code = "ERR_FL_1042"
	CodeContentType       Code = "ERR_FL_1043"
	CodeNotFound          Code = "ERR_FL_1050"
	CodeURLTaken          Code = "ERR_FL_1060"
	CodeInUse             Code = "ERR_FL_1061"
	CodeLimit             Code = "ERR_FL_1062"
	CodeChanged           Code = "ERR_FL_1063"
	CodeGone              Code = "ERR_FL_1070"
	CodeTooMany           Code = "ERR_FL_1080"
	CodeUnavailable       Code = "ERR_FL_1090"
	CodeInternal          Code = "ERR_FL_1099"

	CodeUnreachable Code = "ERR_FL_2001"
	CodeBadAnswer   Code = "ERR_FL_2002"

	CodeEndpointOffline     Code = "ERR_FL_3001"
	CodeUpstreamUnreachable Code = "ERR_FL_3002"
	CodeEndpointUnknown     Code = "ERR_FL_3003"
	CodeNoEdge              Code = "ERR_FL_3004"
	CodeUpstreamBroken      Code = "ERR_FL_3005"
	CodeAgentSilent         Code = "ERR_FL_3006"
	CodeAccessDenied        Code = "ERR_FL_3007"
	CodeEndpointSealed      Code = "ERR_FL_3008"
	CodeNotSealed           Code = "ERR_FL_3009"
	CodeDenied              Code = "ERR_FL_3010"
	CodeLoginNeeded         Code = "ERR_FL_3011"
	CodeRateLimited         Code = "ERR_FL_3012"
	CodePolicyFailed        Code = "ERR_FL_3013"
	CodeLoginAgain          Code = "ERR_FL_3014"
	CodeLoginFailed         Code = "ERR_FL_3015"
	CodeProviderFailed      Code = "ERR_FL_3016"
	CodePolicyCost          Code = "ERR_FL_3017"
	CodeSealUntrusted       Code = "ERR_FL_3018"
	CodeNoTarget            Code = "ERR_FL_3020"
	CodeNoChild             Code = "ERR_FL_3021"
	CodeNoInternal          Code = "ERR_FL_3022"
	CodeLoop                Code = "ERR_FL_3023"
	CodePolicyBroken        Code = "ERR_FL_3024"
	CodeMisdirected         Code = "ERR_FL_3030"
	CodeBadRequest          Code = "ERR_FL_3031"
	CodeHeaderTooLarge      Code = "ERR_FL_3032"
)

// CodeInfo describes a code. Its sentences may have code between backticks and paths of pages of
// docs; docs/fix/errors.md is generated from them.
type CodeInfo struct {
	Code   Code
	Status int    // HTTP status
	Title  string // a few words; the error's message has the rest
	Cause  string
	Remedy string
}

// Codes returns every code, in order.
func Codes() []CodeInfo { return slices.Clone(codes) }

// Info returns the description of the code, the zero value for a code that is not in the table.
func (c Code) Info() CodeInfo {
	i := slices.IndexFunc(codes, func(row CodeInfo) bool { return row.Code == c })
	if i < 0 {
		return CodeInfo{}
	}
	return codes[i]
}

// Status returns the code's HTTP status; 500 for a code that is not in the table.
func (c Code) Status() int { return cmp.Or(c.Info().Status, 500) }

// codes has every code, in order.
var codes = []CodeInfo{
	{CodeNoCredential, 401, "no API key",
		"The request has no `Authorization: Bearer <API_KEY>`, or the agent has no authtoken.",
		"Send the key (`fairlead login` stores one for `fairlead api`), or the token of a ServiceAccount of one of " +
			"the account's clusters (docs/reference/api/clusters.md); give agents their authtoken with `fairlead " +
			"config add-authtoken`."},
	{CodeUnknownCredential, 401, "unknown API key or authtoken",
		"The API key or authtoken is not known here: mistyped, deleted, or of another server. Or a " +
			"ServiceAccount's token is not accepted: its audience, key, issuer, ServiceAccount, UID or life.",
		"Check the secret and the server's address; make a new one with `fairlead-server api-key create` or " +
			"`authtoken create`. Of a token the message names what to change; `fairlead api events list --type " +
			"cluster.token_refused -o wide` has it, too."},
	{CodeWrongKind, 401, "authtoken where an API key belongs, or the reverse",
		"An authtoken (`flt_…`) was given where an API key (`flk_…`) belongs, or the reverse.",
		"Swap them: agents and forwarders take authtokens, API calls take API keys. An exporter is told so by a " +
			"server that knows no keys of the scope `exporter`: update the server."},
	{CodeExpired, 401, "expired API key or authtoken",
		"The API key, authtoken or ServiceAccount token has expired, or such a token is not valid yet.",
		"Create a new key or authtoken and give it to the users of the old one. The kubelet renews tokens of " +
			"ServiceAccounts: see whether it reaches its API server, and compare the clocks."},
	{CodeUnknownKey, 401, "ServiceAccount token of a key that no cluster has",
		"A ServiceAccount's token is signed by a key that no cluster of the account has: the cluster has rotated " +
			"its keys, or is not made known.",
		"`fairlead api clusters update ID --add-jwks-file FILE` with what `kubectl get --raw /openid/v1/jwks` " +
			"prints; clients try again until then. The manager hands new keys over by itself: see the condition " +
			"`KeysKnown` of the KubernetesOperator."},
	{CodeVersionHeader, 400, "Service-Version missing, conflicting or unsupported",
		"`Service-Version` is missing, has conflicting values, or is not `2`.",
		"Send `Service-Version: 2` once; `--version-header` of the server admits further names."},
	{CodeScope, 403, "missing scope or rule",
		"The key lacks the scope, or the key or authtoken the rule, for what was asked; or an exporter's key " +
			"belongs to another cluster; or the role of a ServiceAccount is another.",
		"Use a key with the scope that the message names, or a credential whose ACL has a fitting rule. Make a key " +
			"for each cluster. Give the ServiceAccount the role: `fairlead api clusters update ID --subject " +
			"ROLE=NAMESPACE/NAME …`."},
	{CodeNoRoute, 404, "no such route",
		"There is no such route.",
		"Compare the path with the API (docs/reference/api/README.md); paths have no trailing slash."},
	{CodeMethod, 405, "method not allowed",
		"The route does not offer this method.",
		"Use one of the methods in the header `Allow`."},
	{CodeInvalid, 400, "invalid request",
		"Fields or query parameters break rules; `errors` lists every one with field, value and rule.",
		"Correct each of them as its rule says."},
	{CodeMalformed, 400, "malformed JSON",
		"The body is no JSON object, is not UTF-8, or broke off.",
		"Send one well-formed JSON object; the message names the byte."},
	{CodeTooLarge, 413, "request body too large",
		"The body has more than 1 MiB.",
		"Send less; no resource needs that much."},
	{CodeContentType, 415, "unsupported content type",
		"The body's content type is not JSON.",
		"Send `Content-Type: application/json`."},
	{CodeNotFound, 404, "no such object",
		"There is no object with this id in the account of the key, or the tunnel session has ended.",
		"List the resource to find the id; check that the key is of the right account."},
	{CodeURLTaken, 409, "endpoint URL taken",
		"The URL is held by another agent session, or by a pool that the endpoint does not join, or its host and " +
			"port by an endpoint of another scheme; or agents and a cloud endpoint, or members of a pool with " +
			"different traffic policies, would share it; or an object in a cluster (`AgentEndpoint`, " +
			"`CloudEndpoint`, `ServiceExport`) has it. The message names it.",
		"Stop that agent, choose another name or port, or share the URL: start every agent of it with " +
			"`--pooling-enabled`."},
	{CodeInUse, 409, "object in use",
		"Something else needs the object, or its name is taken; for example the account's last admin key, a " +
			"backend that an endpoint or another backend refers to (`details.used_by` has their ids), a cluster id " +
			"under which another cluster exports Services (`details.cluster_uid` has that one), or the kid of a " +
			"key that another of the account's clusters has.",
		"Do what the message says first: create another admin key, choose another name, take the backend out of " +
			"what uses it, give the cluster another id."},
	{CodeLimit, 409, "account limit reached",
		"The account has reached its limit of endpoints, operators, backends, API keys, authtokens, clusters or " +
			"application users.",
		"Remove those that are not needed, or raise the limit of the server."},
	{CodeChanged, 409, "object changed meanwhile",
		"Others changed the endpoint's `traffic_policy` again and again while the request was looking at it, and " +
			"its text has marks (`redacted:…`) that stand for secrets of an older one.",
		"Read the endpoint, and send the change again."},
	{CodeGone, 410, "resource version compacted or foreign",
		"The `resource_version` was compacted (events are kept for 24 h), lies in the future, or is of another or " +
			"a restored store.",
		"List again and watch from the list's version. Clients of ours do so by themselves."},
	{CodeTooMany, 429, "too many requests",
		"The key sends too many requests, or the account has too many open watches.",
		"Wait as long as `Retry-After` says; share one watch instead of opening many."},
	{CodeUnavailable, 503, "store unavailable",
		"The store does not answer: its disk is full, broken or locked, or the server stops. Nothing was " +
			"half-written.",
		"Try again; look at the server's log and the space in its data directory."},
	{CodeInternal, 500, "internal error",
		"The server failed in an unexpected way.",
		"Report it with the log line that has the operation id."},
	{CodeUnreachable, 503, "service not reachable",
		"The service did not answer: wrong address, firewall, certificate that is not trusted, time-out, or a " +
			"watch that fell silent.",
		"The message ends in the cause; check address, `HTTPS_PROXY`, and the CA given by `--ca-file`, " +
			"`--ca-sha256` or `api.caBundle`."},
	{CodeBadAnswer, 502, "answer that is not the service's",
		"Something answered that is not the service's API: HTML of a proxy or a captive portal, a redirect, half a " +
			"JSON. It is never taken for an empty list.",
		"Check the address; look at what stands between client and service."},
	{CodeEndpointOffline, 503, "endpoint offline",
		"The endpoint's agent is not connected.",
		"Start the agent; `kubectl describe bep` tells since when it is gone."},
	{CodeUpstreamUnreachable, 502, "upstream unreachable",
		"The agent cannot reach its upstream: nothing listens there, it does not answer in time, or the " +
			"certificate of an https upstream is not trusted. The agent shows which.",
		"Start the upstream, or correct the address that the agent forwards to. For a private or self-signed " +
			"certificate give `--upstream-ca-file` or `--upstream-ca-sha256`, for one with another name " +
			"`--upstream-server-name`."},
	{CodeEndpointUnknown, 404, "endpoint unknown to the edge",
		"The edge knows no endpoint with this id and URL: it was just deleted or re-made. At the public edge: no " +
			"endpoint has the scheme, host and port of the request, which the page names, whatever the reason.",
		"Try again in a moment; if it stays, look at the BoundEndpoint's conditions. For a public URL: " +
			"`fairlead doctor URL` tells whether its agent runs, its domain is granted and its scheme and port are " +
			"the endpoint's (mapped ports: docs/run/public-edge.md)."},
	{CodeNoEdge, 503, "forwarder has no connection to the service",
		"The forwarder in the cluster, or `fairlead connect`, has no connection to the service, or the service does " +
			"not respond to it.",
		"Check the forwarder's log, the service's address and the way there."},
	{CodeUpstreamBroken, 502, "upstream broke off",
		"The upstream closed the connection before it had answered; it may have executed the request. Or its " +
			"answer was not HTTP.",
		"Look at the upstream's log; it may have crashed or refused the request."},
	{CodeAgentSilent, 504, "agent did not answer",
		"The agent took the connection and then did not answer, or does not respond " +
			"(docs/use/backends.md#agents-that-do-not-respond) to anything. A request that it had taken may have " +
			"been executed; the sentence tells.",
		"Wake or restart the agent; look at its machine and network."},
	{CodeAccessDenied, 403, "denied by EndpointAccess objects",
		"EndpointAccess objects of the endpoint's namespace do not allow the calling pod, or it is not known which " +
			"pod calls; the sentence tells.",
		"Allow the pod in an EndpointAccess (docs/use/access.md#what-forwarders-decide), or call from one that is " +
			"allowed; pods are known with `forwarder.podIdentity.enabled`."},
	{CodeEndpointSealed, 503, "endpoint is sealed",
		"The endpoint's agent serves sealed connections only, and the forwarder asked for a plain one.",
		"Trust the endpoint's keys in this cluster (docs/secure/sealed.md), and upgrade its operator; or start the " +
			"agent without --sealed."},
	{CodeNotSealed, 503, "endpoint is not sealed",
		"The cluster requires sealed connections with the endpoint, and no agent that serves it seals them.",
		"Start the agent with --sealed (docs/secure/sealed.md); or let `binding.sealed` and EndpointTrust objects " +
			"not require it."},
	{CodeDenied, 403, "denied by the traffic policy",
		"The endpoint's traffic policy (docs/use/traffic-policy/README.md) denies the request (`deny`, whose " +
			"status may be another, or `restrict-ips`).",
		"Call from where the policy admits it, or change the policy."},
	{CodeLoginNeeded, 401, "the traffic policy asks for a login",
		"The traffic policy asks for a user name and a password, and none or wrong ones came; or it asks for a " +
			"login, and the request is no navigation of a browser, which would be sent there.",
		"Send `Authorization: Basic …` with one of the policy's credentials; or open the endpoint in a browser and " +
			"log in."},
	{CodeRateLimited, 429, "too many requests by the traffic policy",
		"More requests came than a `rate-limit` of the traffic policy admits.",
		"Wait as long as `Retry-After` says, or raise the limit."},
	{CodePolicyFailed, 500, "traffic policy could not be carried out",
		"An action of the traffic policy cannot be carried out for this request: an expression in its text has no " +
			"value, or the result is no URL.",
		"Guard the rule with an expression such as `has(conn.pod)`, or correct the text."},
	{CodeLoginAgain, 401, "login older than a revocation",
		"The identity's sessions were revoked after this login began, or nothing says that the identity provider " +
			"has asked the person since.",
		"Log in again; the identity provider asks for the password."},
	{CodeLoginFailed, 403, "login refused",
		"The identity provider did not confirm the login, or this endpoint does not admit the person.",
		"Read the sentence on the page; start again from the endpoint's own address."},
	{CodeProviderFailed, 502, "identity provider does not answer",
		"The identity provider does not answer, or not as the login action's config says.",
		"Check `issuer_url`, `idp_metadata_url`, client id and secret in the traffic policy; the server's log " +
			"names the cause."},
	{CodePolicyCost, 500, "traffic policy takes too much work",
		"The traffic policy takes more work for this request than it may: mostly a regular expression on a very " +
			"long URL. The request is refused as a whole.",
		"Send a shorter URL; or make the rule that the server's log names look at less: `startsWith` for a " +
			"pattern, a condition on `size(req.url.path)` in a rule before it."},
	{CodeSealUntrusted, 503, "agent is not trusted",
		"An agent, or what pretends to be one, answered for a sealed endpoint with a key or a certificate that this " +
			"cluster does not trust; the sentence tells why.",
		"Compare both fingerprints by `fairlead doctor URL` and the agent's screen; then trust the authority or the " +
			"key (docs/secure/sealed.md). If neither is known, the service may be in other hands."},
	{CodeNoTarget, 503, "cloud endpoint without a target",
		"A cloud endpoint has neither a backend nor a traffic policy that answers or forwards the request, or its " +
			"backend is gone.",
		"Set `backend_id`, or a policy that ends in `forward-backend`, `forward-internal` or `custom-response`."},
	{CodeNoChild, 503, "no child of the backend is up",
		"None of the backend's children could be reached: every tunnel group is empty or refuses, every address " +
			"fails to connect.",
		"Start one of the children; `GET /backends/…/{id}` shows which are up."},
	{CodeNoInternal, 503, "internal endpoint missing",
		"The traffic policy forwards to an internal endpoint that does not exist in the account, or is of another " +
			"scheme.",
		"Make the endpoint, or correct the URL in the policy."},
	{CodeLoop, 508, "too many internal endpoints in a row",
		"The request went from one internal endpoint to the next more than 8 times: their policies may form a " +
			"circle.",
		"Correct the `forward-internal` actions."},
	{CodePolicyBroken, 503, "traffic policy cannot be applied",
		"The endpoint's traffic policy does not compile in this version of the service, so nothing passes.",
		"Set the policy again: the answer says line and column."},
	{CodeMisdirected, 421, "request on another host's connection",
		"A request for one host came where another one is served: on a TLS connection whose certificate does not " +
			"cover it, or, from a pod, at an endpoint that has no such name " +
			"(docs/use/agent.md#the-host-that-upstreams-see).",
		"Open a connection for the host; browsers do by themselves. From a pod: call the endpoint by its name, or " +
			"start its agent with `--host-header`."},
	{CodeBadRequest, 400, "request that programs read in different ways",
		"Programs may read the request in different ways: a target that is neither a path nor a URL, two hosts, " +
			"CONNECT, a malformed head.",
		"Correct the client, or the proxy before the edge."},
	{CodeHeaderTooLarge, 431, "request header too large",
		"The request's header is larger than 64 KiB. (HTTP/2 clients get a bare 431.)",
		"Send less: cookies are the usual reason; clear those of the host."},
}
