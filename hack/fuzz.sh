#!/usr/bin/env bash
# Runs every fuzz target of the module for the time given, one after the other: hack/fuzz.sh 30s
# Making an input smaller is bounded: by default it may take a minute, and a target that began with it would end that much late.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-30s}
git grep -l -E '^func Fuzz' -- '*_test.go' | while read -r file; do
	for target in $(grep -oE '^func Fuzz[A-Za-z0-9_]+' "$file" | awk '{print $2}'); do
		echo "== $file $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 2s "./$(dirname "$file")"
	done
done
