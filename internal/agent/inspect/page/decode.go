// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
)

const (
	// maxDecoded is the most bytes that one content coding may grow to.
	maxDecoded = 4 << 20
	maxCodings = 4
	// maxZstdWindow is the most that a body may ask a decoder of zstd to hold (RFC 9659).
	maxZstdWindow = 8 << 20
)

// decoded is the body of a message without its content codings.
type decoded struct {
	data    []byte
	codings []string // codings that were undone, by their names in the header
	cut     bool     // the body has more than data
	note    string   // why a coding was not undone; data is then as received
}

// decodeBody undoes the content codings of a body, as far as it can.
func decodeBody(m *inspect.Message) decoded {
	d := decoded{data: m.Body, cut: m.Truncated}
	codings := contentCodings(m)
	if len(m.Body) == 0 {
		return d
	}
	if len(codings) > maxCodings {
		d.note = fmt.Sprintf("The body is shown as received: Content-Encoding names %d codings, and the inspector "+
			"undoes at most %d.", len(codings), maxCodings)
		return d
	}
	data, cut := m.Body, m.Truncated
	for _, coding := range slices.Backward(codings) {
		plain, more, err := undo(coding, data, cut)
		if err != nil {
			d.note = fmt.Sprintf("The body is shown as received: Content-Encoding is %s, but %s.",
				shorten(strings.Join(codings, ", "), 60), err)
			return d
		}
		data, cut = plain, more
	}
	return decoded{data: data, codings: codings, cut: cut}
}

// contentCodings returns the codings that Content-Encoding lists, in the order in which they were
// applied.
func contentCodings(m *inspect.Message) []string {
	var codings []string
	for _, value := range m.Header.Values("Content-Encoding") {
		for coding := range strings.SplitSeq(value, ",") {
			coding = strings.ToLower(strings.TrimSpace(coding))
			if coding != "" && coding != "identity" {
				codings = append(codings, coding)
			}
		}
	}
	return codings
}

var (
	errUnknownCoding = errors.New("the inspector cannot undo that")
	errOtherCoding   = errors.New("the body is not of that coding")
)

// newDecoder returns what undoes a coding of data.
func newDecoder(coding string, data []byte) (r io.ReadCloser, err error) {
	switch coding {
	case "gzip", "x-gzip":
		r, err = gzip.NewReader(bytes.NewReader(data))
	case "deflate":
		// RFC 9110 means zlib; some send the bare stream.
		if r, err = zlib.NewReader(bytes.NewReader(data)); err != nil {
			r, err = flate.NewReader(bytes.NewReader(data)), nil
		}
	case "zstd":
		var d *zstd.Decoder
		if d, err = zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxZstdWindow)); err == nil {
			r = d.IOReadCloser()
		}
	default:
		return nil, errUnknownCoding
	}
	if err != nil {
		return nil, errOtherCoding
	}
	return r, nil
}

// undo undoes one coding of data, of which cut tells that there was more. It stops at maxDecoded.
func undo(coding string, data []byte, cut bool) (plain []byte, more bool, err error) {
	r, err := newDecoder(coding, data)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = r.Close() }()
	plain, err = io.ReadAll(io.LimitReader(r, maxDecoded+1))
	switch {
	case len(plain) > maxDecoded:
		return plain[:maxDecoded], true, nil
	case err == nil:
		return plain, cut, nil
	case cut && errors.Is(err, io.ErrUnexpectedEOF):
		return plain, true, nil
	}
	return nil, false, errors.New("the body is not of that coding, or broken")
}
