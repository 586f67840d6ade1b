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
load() { if [ "$distribution" = kind ]; then run load image-archive --name $name "$1"; else run image import --cluster $name "$1"; fi; }
finish() {
	if [ "$distribution" = kind ]; then run delete cluster --name $name; else run cluster delete $name; fi || true
	rm -rf "$work"
}
trap finish EXIT

make build
CGO_ENABLED=0 go build -C test/cluster -o "$work/nettool" ./images/nettool
CGO_ENABLED=0 go run -C test/cluster ./cmd/mkimage -o "$work/images.tar" \
	fairlead.test/fairlead-operator:e2e="$PWD/bin/fairlead-operator" fairlead.test/nettool:1="$work/nettool"
docker build --quiet --tag fairlead.test/curl:1 - <<<'FROM buildpack-deps:bookworm-curl' # curl, bash and sleep
docker save --output "$work/curl.tar" fairlead.test/curl:1

if [ "$distribution" = kind ]; then run create cluster --name $name --wait 2m; else run cluster create $name --wait; fi
load "$work/images.tar"
load "$work/curl.tar"

gateway=$(docker network inspect $network --format '{{range .IPAM.Config}}{{println .Gateway}}{{end}}' | grep -m1 -F .)
PATH=$work:$PATH FAIRLEAD_E2E_CONTEXT=$context FAIRLEAD_E2E_HOST_IP=$gateway go test -count=1 -timeout 60m -v ./test/e2e/...
