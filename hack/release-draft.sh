#!/usr/bin/env bash
# Makes a draft of the release VERSION at GitHub, test cluster included, for the release workflow: signed with the key in FAIRLEAD_RELEASE_KEY,
# whose other half is in FAIRLEAD_RELEASE_PUBLIC_KEY, and with the workflow's identity through cosign. Needs gh and GH_TOKEN.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${VERSION:?want the tag that is released, such as v0.2.0}" "${FAIRLEAD_RELEASE_KEY:?want the private key that make release-key wrote}" \
	"${FAIRLEAD_RELEASE_PUBLIC_KEY:?want the public key that make release-key wrote}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(umask 077 && printf '%s\n' "$FAIRLEAD_RELEASE_KEY" >"$work/key")
printf '%s\n' "$FAIRLEAD_RELEASE_PUBLIC_KEY" >"$work/key.pub"
unset FAIRLEAD_RELEASE_KEY
grep -qx "VERSION ?= ${VERSION#v}" Makefile || { echo "the VERSION of the Makefile is not ${VERSION#v}: see docs/build/releasing.md, Before" >&2; exit 1; }
make cluster-build
make release VERSION="$VERSION" KEY="$work/key" RELEASE_FLAGS=--cluster
make release-verify PUBLIC_KEY="$work/key.pub" REBUILD=1
keyless=$work/fairlead_${VERSION#v}.keyless.sigstore.json # beside dist/, of which the key's signature names every file
cosign sign-blob --yes --bundle "$keyless" dist/checksums.txt
gh release create "$VERSION" --draft --verify-tag --title "$VERSION" --notes-file dist/release-notes.md dist/* "$keyless"
