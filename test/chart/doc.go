// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chart tests charts/fairlead-operator, and charts/fairlead-server in the files named
// server_*, through the helm program: what they render (testdata/*.in.yaml and *.out.yaml,
// testdata/server), which values they refuse and with which sentence, that the arguments they write
// are those that the programs read, that the rights that the operator's grants are those that the
// code asks for, and, on a real API server, that they can be installed, upgraded and removed, and
// what the policies of docs/admission decide. The values of docs/start/cloud.md and the commands of
// docs/start/compose.yaml are held to the chart and the programs, too.
// Nothing comes in, and nothing is handed over.
//
// helm is found by FAIRLEAD_HELM, in PATH, or among what `cluster build` has built; Helm 4 by
// FAIRLEAD_HELM4 alone. `go test
// ./test/chart -update` writes the golden files.
package chart
