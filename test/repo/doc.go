// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package repo holds the repository's own rules as tests: who may import whom, package comments,
// licence headers, sizes of files and functions, and that the documents name what exists. Nothing
// comes in, and no package uses it; `make verify` runs it.
package repo
