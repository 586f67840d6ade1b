// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package memory

// releasePages does nothing on other systems.
func releasePages([]byte) {}
