#!/usr/bin/env bash
# The main job, from nothing to a pod that calls http://hello.demo. `hack/demo.sh up` can be run again at any time and goes on where it stopped;
# `hack/demo.sh down` removes every trace. It runs in a throwaway cluster named "demo", or in that of the context FAIRLEAD_DEMO_CONTEXT.
set -euo pipefail
cd "$(dirname "$0")/.."

STATE=$PWD/.demo
BIN=$PWD/bin
VERSION=$(sed -n 's/^VERSION ?= //p' Makefile)
URL=http://hello.demo
CLUSTER="$BIN/cluster"

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\e[1m' red=$'\e[31m' dim=$'\e[2m' off=$'\e[0m'; else bold='' red='' dim='' off=''; fi
step() { echo "${bold}== $*${off}"; }
die() { echo "${red}demo: $*${off}" >&2; exit 1; }

CONTEXT=${FAIRLEAD_DEMO_CONTEXT:-}
if [ -n "$CONTEXT" ]; then . hack/demo-context.sh; else . hack/demo-cluster.sh; fi

# background NAME COMMAND... starts a process once, beside the cluster; remove ends it.
background() {
	local name=$1
	shift
	if [ -s "$STATE/$name.pid" ] && kill -0 "$(cat "$STATE/$name.pid")" 2>/dev/null; then return; fi
	spawn "$@" >>"$STATE/$name.log" 2>&1 </dev/null 3>&- &
	echo $! >"$STATE/$name.pid"
}

# wait_for SECONDS WHAT COMMAND... polls until the command succeeds.
wait_for() {
	local deadline=$((SECONDS + $1)) what=$2
	shift 2
	until "$@" >"$STATE/wait.log" 2>&1; do
		[ $SECONDS -lt $deadline ] || { cat "$STATE/wait.log" >&2; die "$what did not come up; logs are in $STATE"; }
		sleep 0.2
	done
}

start_server() {
	step "fairlead-server at $SERVER"
	background server "$BIN/fairlead-server" --addr "$LISTEN:8443" --base-url "$SERVER" --data-dir "$STATE/server" --bootstrap-file "$STATE/bootstrap"
	wait_for 20 "fairlead-server" run_in curl -fsS http://127.0.0.1:9090/readyz
	"$BIN/fairlead-server" ca --data-dir "$STATE/server" >"$STATE/ca.crt"
	AUTHTOKEN=$(grep -oE 'flt_[A-Za-z0-9_-]+' "$STATE/bootstrap" | head -1)
	API_KEY=$(operator_secret api-key --scope operator)
	FORWARDER_TOKEN=$(operator_secret authtoken --connect '*')
}

# operator_secret KIND FLAGS... makes a credential of the operator once, and prints its secret.
operator_secret() {
	[ -s "$STATE/operator-$1" ] ||
		"$BIN/fairlead-server" "$1" create "${@:2}" --data-dir "$STATE/server" >"$STATE/operator-$1" 2>>"$STATE/server.log" || return
	cat "$STATE/operator-$1"
}

install_operator() {
	step "helm install fairlead-operator"
	load_operator
	helm upgrade --install fairlead-operator charts/fairlead-operator --namespace fairlead --create-namespace \
		--set description="the demo's cluster" --set binding.enabled=true \
		--set credentials.apiKey="$API_KEY" --set credentials.authtoken="$FORWARDER_TOKEN" \
		--set api.url="$SERVER" --set-file api.caBundle="$STATE/ca.crt" \
		--set image.repository="$IMAGE" --set image.tag="$VERSION" --wait --timeout 120s >"$STATE/helm.log" 2>&1 ||
		{ cat "$STATE/helm.log" >&2; die "helm install did not finish"; }
}

start_agent() {
	sed "s|CURL_IMAGE|$CURL_IMAGE|" hack/demo.yaml | kubectl apply -f - >/dev/null
	step "a web server on localhost:8080, and: fairlead http 8080 --url $URL --binding kubernetes"
	background hello "$NETTOOL" serve 127.0.0.1:8080
	wait_for 10 "the web server" run_in curl -fsS http://127.0.0.1:8080/
	XDG_CONFIG_HOME="$STATE" "$BIN/fairlead" config add-authtoken - --server "https://$LISTEN:8443" --ca-file "$STATE/ca.crt" <<<"$AUTHTOKEN" >/dev/null
	background agent env XDG_CONFIG_HOME="$STATE" XDG_STATE_HOME="$STATE" "$BIN/fairlead" http 8080 --url "$URL" --binding kubernetes
}

call_it() {
	step "a pod calls $URL"
	kubectl -n demo wait --for=condition=Ready pod/curl --timeout=60s >/dev/null
	wait_for 30 "$URL" kubectl -n demo exec curl -- curl -fsS -m 5 "$URL"
	echo "${dim}\$ kubectl -n demo exec curl -- curl -sS $URL${off}"
	kubectl -n demo exec curl -- curl -sS -m 5 "$URL"
	echo "${dim}\$ kubectl get boundendpoints -A${off}"
	kubectl get boundendpoints -A
}

up() {
	preflight
	SERVER=https://$HOST:8443
	exec 3>&1 # also where a command's output goes to a file, a person reads what the trap says
	trap 'echo >&3; echo "demo: stopped; run make demo${CONTEXT:+ CONTEXT=$CONTEXT} to go on, or make demo-down${CONTEXT:+ CONTEXT=$CONTEXT} to remove it" >&3; exit 130' INT TERM
	prepare
	mkdir -p "$STATE"
	chmod 700 "$STATE"
	start_server
	install_operator
	start_agent
	call_it
	cat <<TXT

${bold}It works, and nothing was public.${off} The cluster stays up. Try:

  $REACH -n demo exec curl -- curl -sS $URL/any/path
  $REACH describe boundendpoint hello.demo -n fairlead
  $REACH get services -A

The agent's screen is in .demo/agent.log. To remove every trace: make demo-down${CONTEXT:+ CONTEXT=$CONTEXT}
TXT
}

down() {
	remove
	rm -rf "$STATE"
	echo "demo: nothing left"
}

case "${1:-}" in
up) up ;;
down) down ;;
*) die "usage: hack/demo.sh up|down" ;;
esac
