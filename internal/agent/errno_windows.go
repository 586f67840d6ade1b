// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import "golang.org/x/sys/windows"

// The errors of Windows sockets. The POSIX names of package syscall are not returned on Windows.
const (
	errRefused   = windows.WSAECONNREFUSED
	errReset     = windows.WSAECONNRESET
	errPipe      = windows.WSAECONNABORTED
	errNoHost    = windows.WSAEHOSTUNREACH
	errNoNetwork = windows.WSAENETUNREACH
)
