# Sourced by demo.sh: the demo in a throwaway cluster of its own, named "demo".
HOST=10.99.0.2
LISTEN=$HOST
IMAGE=fairlead.dev/fairlead-operator
CURL_IMAGE=fairlead.test/curl:1
REACH="bin/cluster exec --name demo -- kubectl"

run_in() { "$CLUSTER" exec --name demo -- "$@"; }
kubectl() { run_in kubectl "$@"; }
helm() { run_in helm "$@"; }
spawn() { exec setsid "$CLUSTER" exec --name demo -- "$@"; }

preflight() {
	[ "$(uname -s)" = Linux ] || die "the demo's cluster needs Linux; on another system name a context of your kubeconfig: make demo CONTEXT=kind-kind"
	[ "$(id -u)" -eq 0 ] || die "the demo's cluster needs root (it makes namespaces and mounts of its own): sudo make demo; or name a context of your kubeconfig: make demo CONTEXT=kind-kind"
	command -v go >/dev/null || die "Go 1.26 or newer is not in PATH: see https://go.dev/doc/install"
	hack/deps.sh cluster
}

prepare() {
	step "programs and a Kubernetes from Go modules"
	make build cluster-build
	step "a single-node cluster"
	"$CLUSTER" up --name demo
	NETTOOL="$("$CLUSTER" build --only images --print-dir)/nettool"
}

load_operator() { "$CLUSTER" load --name demo "$IMAGE:$VERSION=$BIN/fairlead-operator"; }

remove() {
	[ "$(id -u)" -eq 0 ] || die "removing the demo needs root: sudo make demo-down"
	if [ -x "$CLUSTER" ]; then "$CLUSTER" down --name demo; else make cluster && "$CLUSTER" down --name demo; fi
}
