#!/usr/bin/env bash
# The three programs and the charts of an earlier commit, in dist/compat: hack/compat.sh REF. Its sources are built in a temporary directory.
set -euo pipefail
cd "$(dirname "$0")/.."
ref=${1:?usage: hack/compat.sh REF}
if ! commit=$(git rev-parse --quiet --verify "$ref^{commit}"); then
	echo "compat: this clone has no commit $ref: get it with \`git fetch origin $ref\`, a shallow clone's whole history with" \
		"\`git fetch --unshallow --tags\`, or give another version: \`make compat COMPAT_REF=…\`" >&2
	exit 1
fi
sources=$(mktemp -d)
trap 'rm -rf "$sources"' EXIT
git archive "$commit" | tar -x -C "$sources"
rm -rf dist/compat && mkdir -p dist/compat
CGO_ENABLED=0 go build -C "$sources" -trimpath -o "$PWD/dist/compat/" ./cmd/fairlead ./cmd/fairlead-server ./cmd/fairlead-operator
cp -r "$sources/charts" dist/compat/
echo "$commit" >dist/compat/COMMIT
echo "dist/compat has the programs and charts of $(git log -1 --format='%h (%cs, %s)' "$commit")"
