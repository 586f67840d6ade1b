// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux

import "encoding/binary"

// The protocol: https://github.com/hashicorp/yamux/blob/master/spec.md.
const (
	headerSize    = 12
	initialWindow = 256 << 10 // bytes in each direction of a stream, until a window update

	typeData   = 0
	typeWindow = 1
	typePing   = 2
	typeGoAway = 3

	flagSYN = 1
	flagACK = 2
	flagFIN = 4
	flagRST = 8
)

const (
	maxPayload   = 64 << 10 // bytes of a data frame that is sent: four full TLS records
	smallPayload = 8 << 10  // a frame up to this size may be copied, to be sent with others
)

// header is the header of a frame.
type header [headerSize]byte

func (h *header) version() byte  { return h[0] }
func (h *header) kind() byte     { return h[1] }
func (h *header) flags() uint16  { return binary.BigEndian.Uint16(h[2:]) }
func (h *header) id() uint32     { return binary.BigEndian.Uint32(h[4:]) }
func (h *header) length() uint32 { return binary.BigEndian.Uint32(h[8:]) }

func appendHeader(b []byte, kind byte, flags uint16, id, length uint32) []byte {
	b = append(b, 0, kind)
	b = binary.BigEndian.AppendUint16(b, flags)
	b = binary.BigEndian.AppendUint32(b, id)
	return binary.BigEndian.AppendUint32(b, length)
}
