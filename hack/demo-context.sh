# Sourced by demo.sh: the demo on a cluster that exists, in the namespaces "fairlead" and "demo"; service, agent and web server run on this machine.
#   FAIRLEAD_DEMO_CONTEXT    context of the kubeconfig
#   FAIRLEAD_DEMO_HOST_IP    address of this machine that the cluster's pods reach; with kind the gateway of its network:
#                            docker network inspect kind -f '{{(index .IPAM.Config 0).Gateway}}'
#   FAIRLEAD_DEMO_LOAD       command that loads an image archive into the cluster, such as "kind load image-archive"
#   FAIRLEAD_DEMO_CURL_IMAGE image with curl and sleep; default curlimages/curl:8.17.0
HOST=${FAIRLEAD_DEMO_HOST_IP:-}
IMAGE=ghcr.io/fairlead-dev/fairlead-operator
CURL_IMAGE=${FAIRLEAD_DEMO_CURL_IMAGE:-curlimages/curl:8.17.0}
REACH="kubectl --context $CONTEXT"

run_in() { "$@"; }
kubectl() { command kubectl --context "$CONTEXT" "$@"; }
helm() { command helm --kube-context "$CONTEXT" "$@"; }
spawn() { exec setsid "$@"; }

preflight() {
	[ -n "$HOST" ] || die "FAIRLEAD_DEMO_HOST_IP must say at which address of this machine the pods of $CONTEXT reach it"
	[ -n "${FAIRLEAD_DEMO_LOAD:-}" ] || die "FAIRLEAD_DEMO_LOAD must name the command that loads an image archive into $CONTEXT, such as \"kind load image-archive\""
	for program in go kubectl helm curl setsid; do command -v $program >/dev/null || die "$program is not in PATH"; done
	kubectl version >/dev/null || die "kubectl does not reach the context $CONTEXT"
}

prepare() {
	step "programs"
	make build image VERSION=0.1.0-dev
	NETTOOL="$BIN/nettool"
	CGO_ENABLED=0 go build -C test/cluster -o "$NETTOOL" ./images/nettool
}

load_operator() { $FAIRLEAD_DEMO_LOAD dist/fairlead-operator_0.1.0-dev_image.tar; }

remove() {
	for pid in "$STATE"/*.pid; do
		[ ! -s "$pid" ] || kill "$(cat "$pid")" 2>/dev/null || true
	done
	helm uninstall fairlead-operator --namespace fairlead --ignore-not-found --wait
	kubectl delete namespace fairlead demo --ignore-not-found
}
