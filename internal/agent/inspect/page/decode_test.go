// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
)

func compress(data []byte, with func(io.Writer) io.WriteCloser) []byte {
	var b bytes.Buffer
	w := with(&b)
	if _, err := w.Write(data); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func gzipOf(data []byte) []byte {
	return compress(data, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) })
}

func zlibOf(data []byte) []byte {
	return compress(data, func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) })
}

func flateOf(data []byte) []byte {
	return compress(data, func(w io.Writer) io.WriteCloser {
		f, err := flate.NewWriter(w, flate.BestCompression)
		if err != nil {
			panic(err)
		}
		return f
	})
}

func zstdOf(data []byte) []byte {
	return compress(data, func(w io.Writer) io.WriteCloser {
		e, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
		if err != nil {
			panic(err)
		}
		return e
	})
}

func encodedMessage(encoding string, body []byte) *inspect.Message {
	return &inspect.Message{Header: http.Header{"Content-Encoding": {encoding}}, Body: body, BodySize: int64(len(body))}
}

func TestDecodeBody_UndoesCodings(t *testing.T) {
	t.Parallel()
	plain := []byte(strings.Repeat("hello ", 50))
	for encoding, body := range map[string][]byte{"": plain, "identity": plain, "gzip": gzipOf(plain),
		"GZIP": gzipOf(plain), "x-gzip": gzipOf(plain), "deflate": zlibOf(plain),
		"gzip, deflate": zlibOf(gzipOf(plain)), "zstd": zstdOf(plain), "gzip, zstd": zstdOf(gzipOf(plain)),
		"gzip,identity, gzip": gzipOf(gzipOf(plain))} {
		if d := decodeBody(encodedMessage(encoding, body)); !bytes.Equal(d.data, plain) || d.note != "" || d.cut {
			t.Errorf("%q: %q, note %q, cut %t", encoding, d.data, d.note, d.cut)
		}
	}
	if d := decodeBody(encodedMessage("deflate", flateOf(plain))); !bytes.Equal(d.data, plain) {
		t.Errorf("deflate without zlib: %q, %s", d.data, d.note)
	}
}

func TestDecodeBody_ShowsLiesAsReceived(t *testing.T) {
	t.Parallel()
	plain := []byte("not what the header says")
	broken := gzipOf(bytes.Repeat(plain, 20))
	broken[len(broken)-12] ^= 0xff
	for encoding, body := range map[string][]byte{"gzip": plain, "deflate": plain, "br": plain, "zstd": plain,
		"x-unknown": plain, "gzip, gzip": gzipOf(plain), "gzip ": broken,
		"gzip, gzip, gzip, gzip, gzip": plain} {
		d := decodeBody(encodedMessage(encoding, body))
		if !bytes.Equal(d.data, body) || d.note == "" || len(d.codings) != 0 {
			t.Errorf("%q: %q, note %q", encoding, d.data, d.note)
		}
	}
}

func TestDecodeBody_BoundsBombs(t *testing.T) {
	t.Parallel()
	bomb := gzipOf(make([]byte, 64<<20))
	nested := gzipOf(bomb)
	// A frame of zstd that asks for a window of 1 GiB, and one block of zeros.
	window := []byte("\x28\xb5\x2f\xfd\x00\xa0\x03\x00\x10\x00")
	if d := decodeBody(encodedMessage("zstd", window)); d.note == "" || !bytes.Equal(d.data, window) {
		t.Errorf("a window of 1 GiB: %d bytes, %q", len(d.data), d.note)
	}
	for encoding, body := range map[string][]byte{"gzip": bomb, "gzip, gzip": nested,
		"gzip,gzip,gzip": gzipOf(nested), "zstd": zstdOf(make([]byte, 64<<20)),
		"zstd, gzip": gzipOf(zstdOf(make([]byte, 64<<20)))} {
		if d := decodeBody(encodedMessage(encoding, body)); len(d.data) > maxDecoded || !d.cut {
			t.Errorf("%s: %d bytes, cut %t, %s", encoding, len(d.data), d.cut, d.note)
		}
	}
}

func TestDecodeBody_DecodesWhatWasKept(t *testing.T) {
	t.Parallel()
	plain := []byte(strings.Repeat("some text that goes on; ", 20_000))
	for i := range plain { // so that it takes several blocks
		plain[i] ^= byte(i*i>>7) & 3
	}
	for encoding, whole := range map[string][]byte{"gzip": gzipOf(plain), "zstd": zstdOf(plain)} {
		m := encodedMessage(encoding, whole[:len(whole)-20])
		m.Truncated, m.BodySize = true, int64(len(whole))
		if d := decodeBody(m); !bytes.HasPrefix(plain, d.data) || len(d.data) == 0 || !d.cut || d.note != "" {
			t.Errorf("%s: %d bytes, cut %t, note %q", encoding, len(d.data), d.cut, d.note)
		}
	}
}

func FuzzDecodeBody(f *testing.F) {
	f.Add("gzip", gzipOf([]byte("hello")), false)
	f.Add("deflate", zlibOf([]byte("hello")), true)
	f.Add("zstd", zstdOf([]byte("hello")), true)
	f.Add("gzip, deflate,br", []byte("hello"), false)
	f.Fuzz(func(t *testing.T, encoding string, body []byte, truncated bool) {
		m := encodedMessage(encoding, body)
		m.Truncated = truncated
		d := decodeBody(m)
		if len(d.data) > max(maxDecoded, len(body)) {
			t.Errorf("%d bytes", len(d.data))
		}
		if d.note != "" && !bytes.Equal(d.data, body) {
			t.Error("a body that was not decoded is not as received")
		}
	})
}
