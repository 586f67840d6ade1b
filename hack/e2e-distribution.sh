#!/usr/bin/env bash
# Runs the end-to-end suite on a throwaway cluster of kind or k3d: hack/e2e-distribution.sh kind|k3d (needs Docker, kubectl and helm)
set -euo pipefail
cd "$(dirname "$0")/.."
distribution=${1:-}
name=fairlead-e2e
case $distribution in
	kind) tool=sigs.k8s.io/kind@v0.33.0 network=kind context=kind-$name ;;
	k3d) tool=github.com/k3d-io/k3d/v5@v5.9.0 network=k3d-$name context=k3d-$name ;;
	*) echo "usage: $0 kind|k3d" >&2; exit 2 ;;
esac
for program in docker kubectl helm; do
	command -v $program >/dev/null || { echo "$program is not in PATH: install it; the suite on its own cluster needs none of them (make e2e)" >&2; exit 1; }
done

work=$(mktemp -d)
export KUBECONFIG=$work/kubeconfig
run() { go run "$tool" "$@"; }
finish() {
	if [ "$distribution" = kind ]; then run delete cluster --name $name; else run cluster delete $name; fi || true
	rm -rf "$work"
}
trap finish EXIT

make build
CGO_ENABLED=0 go build -C test/cluster -o "$work/nettool" ./images/nettool
image() { printf 'FROM scratch\nCOPY %s /\nUSER 65532:65532\nENTRYPOINT ["/%s"]\n' "$2" "$2" | docker build --quiet --tag "$1" --file - "$3"; }
images=(fairlead.test/fairlead-operator:e2e fairlead.test/nettool:1 fairlead.test/curl:1)
image "${images[0]}" fairlead-operator bin
image "${images[1]}" nettool "$work"
docker build --quiet --tag "${images[2]}" - <<<'FROM buildpack-deps:bookworm-curl' # curl, bash and sleep

if [ "$distribution" = kind ]; then
	run create cluster --name $name --wait 2m
	run load docker-image --name $name "${images[@]}"
else
	run cluster create $name --wait
	run image import --cluster $name "${images[@]}"
fi
gateway=$(docker network inspect $network --format '{{range .IPAM.Config}}{{println .Gateway}}{{end}}' | grep -m1 -F .)
PATH=$work:$PATH FAIRLEAD_E2E_CONTEXT=$context FAIRLEAD_E2E_HOST_IP=$gateway go test -count=1 -timeout 60m -v ./test/e2e/...
