// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package lease

import "time"

// Now returns the time since the process was started.
func Now() time.Duration { return monotonic() }
