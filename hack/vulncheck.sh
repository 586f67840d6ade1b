#!/usr/bin/env bash
# Looks for known vulnerabilities in what the modules of this repository call: hack/vulncheck.sh DATABASE, such as https://vuln.go.dev or file:///path
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${1:-}" ]; then
	echo "vulncheck: not run: name a database of vulnerabilities, VULNDB=https://vuln.go.dev or VULNDB=file:///its/folder"
	exit 0
fi
status=0
# test/cluster is Kubernetes itself, which no user of Fairlead runs.
for module in $(git ls-files 'go.mod' '*/go.mod' | grep -v '^test/cluster/'); do
	dir=$(dirname "$module")
	echo "== $dir"
	go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 -db "$1" -C "$dir" ./... || status=1
done
exit $status
