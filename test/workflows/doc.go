// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workflows holds the rules of .github/workflows. The workflows and the Makefile come in;
// out goes a failed test for what actionlint finds, for commands that are no targets of the
// Makefile, for actions that are not pinned and for jobs with more rights or time than they name.
// It is a module of its own because actionlint and the linters of tools/ need different versions
// of one YAML package. That the workflows run at GitHub is not tested here.
package workflows
