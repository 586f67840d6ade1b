// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"slices"
)

// IsSpare reports whether the stream is sealed and has no client yet.
func (h *OpenHeader) IsSpare() bool { return h.Sealed && h.SpareID != 0 }

// OpenBeside opens a stream on the same connection, and so to the same replica.
func (s *Stream) OpenBeside(ctx context.Context, h OpenHeader) (*Stream, error) {
	b, err := h.encode()
	if err != nil {
		return nil, err
	}
	session := s.link.session
	session.mu.Lock()
	isActive := slices.Contains(session.links.active, s.link)
	if isActive {
		s.link.streamStarted()
	}
	session.mu.Unlock()
	if !isActive {
		return nil, errRetired
	}
	return s.link.open(ctx, h, b)
}

// HasEnded reports whether an idle stream is known to have been reset, or cut.
func (s *Stream) HasEnded() bool {
	return s.st.WriteError() != nil || s.pair != nil && (s.pair.endError() != nil || hasEnded(s.pair.conn))
}
