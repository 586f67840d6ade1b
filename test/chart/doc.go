// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chart tests charts/fairlead-operator through the helm program: what it renders (testdata/*.in.yaml and *.out.yaml), which values it refuses and
// with which sentence, that the arguments it writes are those that fairlead-operator reads, that the rights it grants are those that the code asks for, and,
// on a real API server, that it can be installed, upgraded and removed. Nothing comes in and it hands over to nobody.
//
// helm is found by FAIRLEAD_HELM, in PATH, or among what `cluster build` has built. `go test ./test/chart -update` writes the golden files.
package chart
