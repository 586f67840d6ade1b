// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import "golang.org/x/sys/windows"

// What Windows says where other systems have the errors of POSIX, whose names in package syscall
// stand for nothing there.
const (
	errRefused   = windows.WSAECONNREFUSED
	errReset     = windows.WSAECONNRESET
	errPipe      = windows.WSAECONNABORTED
	errNoHost    = windows.WSAEHOSTUNREACH
	errNoNetwork = windows.WSAENETUNREACH
)
