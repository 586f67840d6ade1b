// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli owns what the command lines of the three programs share: the words of usage errors,
// suggestions for what was misspelt, the version, and help that fits the terminal. What comes in: a
// program's root command and the errors of the command and flag libraries. What goes out: the same
// command, prepared, and texts; the program gives them its exit codes.
package cli
