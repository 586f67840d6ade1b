// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package relay

// canPoll is false where a socket cannot be read without waiting.
const canPoll = false

func (s *Source) pollRead(uintptr) bool { return true }
