// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"compress/flate"
	"io"
)

const (
	inflateWindow = 32 << 10
	maxInflated   = 1 << 20 // bytes of one message; more is not decompressed
)

// inflater decompresses the messages of one direction of a WebSocket (permessage-deflate, RFC
// 7692). After a message of which not everything was recorded it decompresses nothing any more:
// later messages may refer to it.
type inflater struct {
	message []byte // the frames so far
	window  []byte // the end of what was decompressed before
	broken  bool
}

// frame takes the next frame of a compressed message. It returns the whole message, at most
// maxFrameData of it, behind its last frame, and else nil.
func (d *inflater) frame(data []byte, size int64, final bool) []byte {
	if int64(len(data)) != size || len(d.message)+len(data) > maxInflated {
		d.broken, d.message, d.window = true, nil, nil
	}
	if d.broken {
		return nil
	}
	d.message = append(d.message, data...)
	if !final {
		return nil
	}
	// The message lacks the end of its last block; an empty final block ends the stream.
	in := append(d.message, 0x00, 0x00, 0xff, 0xff, 0x01, 0x00, 0x00, 0xff, 0xff)
	d.message = nil
	r := flate.NewReaderDict(bytes.NewReader(in), d.window)
	out, err := io.ReadAll(io.LimitReader(r, maxInflated+1))
	if err != nil || len(out) > maxInflated {
		d.broken, d.window = true, nil
		return nil
	}
	d.window = append(d.window, out...)
	d.window = bytes.Clone(d.window[max(len(d.window)-inflateWindow, 0):])
	return bytes.Clone(out[:min(len(out), maxFrameData)])
}
