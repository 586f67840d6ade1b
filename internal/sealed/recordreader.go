// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel/connread"
)

var (
	// errCut must not be io.ErrUnexpectedEOF itself, which crypto/tls takes for a clean end when it
	// comes between two records.
	errCut      = fmt.Errorf("the stream below a sealed connection ended without close_notify: %w", io.ErrUnexpectedEOF)
	errAfterEnd = errors.New("the stream below a sealed connection goes on after close_notify")
)

// recordReader is the stream below as crypto/tls sees it. It returns no byte beyond the record that
// is being read: crypto/tls then keeps a buffer of one record at most, and a caller can wait for
// the next record without one. Only one goroutine may read.
type recordReader struct {
	Below
	header [5]byte
	filled int // bytes of header that have arrived
	taken  int // bytes of header that crypto/tls has read
	left   int // bytes that follow the last header and were not read

	broken atomic.Bool // broken is set once the stream below has failed.
}

// awaitRecord waits until a record's header has arrived, or a part of a record.
func (r *recordReader) awaitRecord() error {
	for r.left == 0 && r.filled < len(r.header) {
		n, err := r.Below.Read(r.header[r.filled:])
		r.filled += n
		if err != nil && r.filled < len(r.header) {
			return r.readError(err)
		}
	}
	return nil
}

// Read reads the rest of a header, or of what follows it.
func (r *recordReader) Read(p []byte) (int, error) {
	if err := r.awaitRecord(); err != nil {
		return 0, err
	}
	if r.left > 0 {
		n, err := r.Below.Read(p[:min(len(p), r.left)])
		r.left -= n
		return n, r.readError(err)
	}
	n := copy(p, r.header[r.taken:])
	if r.taken += n; r.taken == len(r.header) {
		r.filled, r.taken, r.left = 0, 0, int(binary.BigEndian.Uint16(r.header[3:]))
	}
	return n, nil
}

func (r *recordReader) readError(err error) error {
	if err != nil {
		r.broken.Store(true)
	}
	if connread.IsEOF(err) {
		return errCut
	}
	return err
}

func (r *recordReader) Write(p []byte) (int, error) {
	n, err := r.Below.Write(p)
	if err != nil {
		r.broken.Store(true)
	}
	return n, err
}

// Close is called by crypto/tls when the context of a handshake ends.
func (r *recordReader) Close() error { return r.Abort() }

// SetWriteDeadline keeps crypto/tls from giving up close_notify after 5 s, while the peer reads what
// was written before.
func (r *recordReader) SetWriteDeadline(time.Time) error { return nil }
