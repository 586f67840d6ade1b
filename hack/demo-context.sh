# Sourced by demo.sh: the demo on a cluster that exists, in the namespaces "fairlead" and "demo"; service, agent and web server run on this machine. Contexts of
# kind, k3d, minikube and Docker Desktop are known by their names; for another, or to overrule:
#   FAIRLEAD_DEMO_HOST_IP    address of this machine that the cluster's pods reach
#   FAIRLEAD_DEMO_LOAD       command that loads an image archive into the cluster, such as "kind load image-archive"
#   FAIRLEAD_DEMO_CURL_IMAGE image with curl and sleep; default curlimages/curl:8.17.0
LOAD=${FAIRLEAD_DEMO_LOAD:-}
HOST=${FAIRLEAD_DEMO_HOST_IP:-}
IMAGE=ghcr.io/fairlead-dev/fairlead-operator
CURL_IMAGE=${FAIRLEAD_DEMO_CURL_IMAGE:-curlimages/curl:8.17.0}
REACH="kubectl --context $CONTEXT"

run_in() { "$@"; }
kubectl() { command kubectl --context "$CONTEXT" "$@"; }
helm() { command helm --kube-context "$CONTEXT" "$@"; }
spawn() { exec $(command -v setsid || echo nohup) "$@"; } # macOS has no setsid

# gateway NETWORK prints the address of this machine in a network of Docker. Beyond Linux that is an address of Docker's own machine, and containers know
# this one by a name.
gateway() {
	if [ "$(uname -s)" != Linux ]; then
		echo host.docker.internal
	else
		docker network inspect "$1" --format '{{range .IPAM.Config}}{{println .Gateway}}{{end}}' | grep -m 1 -F . || true # not the one of IPv6
	fi
}

# detect_tool sets LOAD and HOST, where they are not given, as the tool wants it that made the context, and LISTEN, where the service takes what comes for HOST.
detect_tool() {
	case $CONTEXT in
	kind-*)
		LOAD=${LOAD:-kind load image-archive --name ${CONTEXT#kind-}}
		HOST=${HOST:-$(gateway kind)}
		;;
	k3d-*)
		LOAD=${LOAD:-k3d image import --cluster ${CONTEXT#k3d-}}
		HOST=${HOST:-$(gateway "$CONTEXT")}
		;;
	docker-desktop)
		LOAD=${LOAD:-docker load --input}
		HOST=${HOST:-host.docker.internal}
		;;
	*)
		if command -v minikube >/dev/null && minikube profile list --output json | grep -q "\"Name\":\"$CONTEXT\""; then
			LOAD=${LOAD:-minikube --profile $CONTEXT image load}
			HOST=${HOST:-$(minikube --profile "$CONTEXT" ssh -- getent hosts host.minikube.internal | awk '{print $1}')}
		fi
		;;
	esac
	LISTEN=$HOST
	if [ "$HOST" = host.docker.internal ]; then LISTEN=127.0.0.1; fi
}

preflight() {
	for program in go kubectl helm curl; do command -v $program >/dev/null || die "$program is not in PATH"; done
	kubectl version >/dev/null || die "kubectl does not reach the context $CONTEXT"
	detect_tool
	[ -n "$HOST" ] || die "FAIRLEAD_DEMO_HOST_IP must name the address of this machine that the pods of $CONTEXT reach"
	[ -n "$LOAD" ] || die "FAIRLEAD_DEMO_LOAD must name the command that loads an image archive into $CONTEXT, such as \"kind load image-archive\""
}

prepare() {
	step "programs"
	make build image
	NETTOOL="$BIN/nettool"
	CGO_ENABLED=0 go build -C test/cluster -o "$NETTOOL" ./images/nettool
}

load_operator() { $LOAD "dist/fairlead-operator_${VERSION}_image.tar"; }

remove() {
	for pid in "$STATE"/*.pid; do
		[ ! -s "$pid" ] || kill "$(cat "$pid")" 2>/dev/null || true
	done
	helm uninstall fairlead-operator --namespace fairlead --ignore-not-found --wait
	kubectl delete namespace fairlead demo --ignore-not-found
}
