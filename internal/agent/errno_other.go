// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package agent

import "syscall"

const (
	errRefused   = syscall.ECONNREFUSED
	errReset     = syscall.ECONNRESET
	errPipe      = syscall.EPIPE
	errNoHost    = syscall.EHOSTUNREACH
	errNoNetwork = syscall.ENETUNREACH
)
