#!/usr/bin/env bash
# The agent for every system that it runs on, as dist/fairlead_VERSION_OS_ARCH, and dist/SHA256SUMS. LDFLAGS are those of `make build`.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?usage: hack/cross.sh VERSION}
mkdir -p dist
rm -f dist/fairlead_* dist/SHA256SUMS
export CGO_ENABLED=0
for os in linux darwin windows; do
	for arch in amd64 arm64; do
		suffix=$([ "$os" = windows ] && echo .exe || true)
		GOOS=$os GOARCH=$arch go build -trimpath -ldflags "${LDFLAGS:-}" -o "dist/fairlead_${version}_${os}_$arch$suffix" ./cmd/fairlead
	done
done
cd dist && sha256sum fairlead_* | tee SHA256SUMS
