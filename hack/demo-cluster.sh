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

# find_built sets BUILT to a file that `cluster save` wrote: FAIRLEAD_DEMO_CLUSTER, or that of the release which this checkout is. It is empty
# where everything is in the cache, or is to be compiled.
find_built() {
	local url=https://github.com/fairlead-dev/fairlead/releases/download/v$VERSION missing='' part name compiler
	BUILT=${FAIRLEAD_DEMO_CLUSTER:-}
	for part in kubenode tools helm images; do [ -d "$("$CLUSTER" build --only $part --print-dir)" ] || missing=$part; done
	if [ -n "$BUILT" ] || [ -z "$missing" ] || [[ $VERSION == *-dev ]]; then return; fi
	compiler=go$(sed -n 's/^go //p' test/cluster/go.mod) # that of releases
	name=fairlead_${VERSION}_cluster_linux_$(go env GOARCH).tar.gz
	if [ "$(go -C test/cluster env GOVERSION)" != "$compiler" ]; then
		echo "compiling Kubernetes: the release's is by $compiler, and GOTOOLCHAIN=$compiler chooses that"
	elif ! curl -fsL --connect-timeout 5 -o "$STATE/checksums.txt" "$url/checksums.txt" || ! grep "  $name\$" "$STATE/checksums.txt" >"$STATE/checksum"; then
		echo "compiling Kubernetes: $name is not to be had from $url"
	elif ! curl -fL --connect-timeout 5 --progress-bar -o "$STATE/$name" "$url/$name"; then
		echo "compiling Kubernetes: the download of $url/$name failed"
	else
		(cd "$STATE" && sha256sum --check --status checksum) || die "$STATE/$name is not the file that $url/checksums.txt names: try again, and report it if it stays so"
		BUILT=$STATE/$name
	fi
}

prepare() {
	mkdir -p "$STATE"
	step "programs and a Kubernetes from Go modules"
	if [ ! -x "$CLUSTER" ]; then # downloads Kubernetes' modules while the programs are compiled
		go -C test/cluster list -deps ./kubenode ./coredns ./images/... tool >/dev/null 2>&1 &
	fi
	make build cluster
	find_built
	"$CLUSTER" build ${BUILT:+--from "$BUILT"}
	rm -f "$STATE"/fairlead_*_cluster_*
	step "a single-node cluster"
	"$CLUSTER" up --name demo
	NETTOOL="$("$CLUSTER" build --only images --print-dir)/nettool"
}

load_operator() { "$CLUSTER" load --name demo "$IMAGE:$VERSION=$BIN/fairlead-operator"; }

remove() {
	[ "$(id -u)" -eq 0 ] || die "removing the demo needs root: sudo make demo-down"
	if [ -x "$CLUSTER" ]; then "$CLUSTER" down --name demo; else make cluster && "$CLUSTER" down --name demo; fi
}
