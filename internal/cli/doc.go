// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli is what the command lines of the three programs share: usage errors, suggestions for
// misspelt names, the version, and help that fits the terminal. Input: a program's root command and
// the errors of the command and flag libraries. Output: the prepared command, and error messages;
// the program chooses the exit codes.
package cli
