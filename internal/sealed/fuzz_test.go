// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"strings"
	"testing"
)

// FuzzReadFrame reads headers that hostile callers may send. What is accepted can be sent again and
// is the same, and no byte beyond it was read.
func FuzzReadFrame(f *testing.F) {
	for _, text := range []string{`{"url":"tcp://db.demo:5432"}`, `{"url":"http://*.demo","pod":{}}`, `{}`, `[]`, ``,
		`{"url":"http://API.demo","client_addr":"10.0.0.1:1","trace_id":"t","deadline_ms":4294967295,` +
			`"pod":{"namespace":"shop","name":"web","service_account":"web"}}`} {
		f.Add(append(binary.BigEndian.AppendUint16(nil, uint16(len(text))), text...))
	}
	f.Add([]byte{0xff})
	f.Add([]byte{0xff, 0xff, '{', '}'})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(append(b, "next"...))
		var frame headerFrame
		if readFrame(r, &frame) != nil {
			return
		}
		if size := int(binary.BigEndian.Uint16(b)); r.Len() != len(b)-framePrefix-size+len("next") {
			t.Fatalf("%d bytes are left", r.Len())
		}
		h, err := frame.parse()
		if err != nil {
			return
		}
		var sent bytes.Buffer
		var again headerFrame
		if err := writeFrame(&sent, h.frame()); err != nil {
			if len(b) < frameLimit/6 { // JSON escapes a byte with six
				t.Fatal(err)
			}
			return
		}
		if err := readFrame(&sent, &again); err != nil {
			t.Fatal(err)
		}
		if other, err := again.parse(); err != nil || !reflect.DeepEqual(h, other) {
			t.Errorf("%+v became %+v, %v", h, other, err)
		}
	})
}

// FuzzReadHint reads what hostile services may send first.
func FuzzReadHint(f *testing.F) {
	f.Add([]byte("\x08ep_agent"))
	f.Add([]byte{0})
	f.Add([]byte("\xff" + strings.Repeat("x", 255)))
	f.Add([]byte("HTTP/1.1 400 Bad Request"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		id, err := ReadHint(r)
		if err != nil {
			return
		}
		if !bytes.Equal(Hint(id), b[:1+len(id)]) || r.Len() != len(b)-1-len(id) {
			t.Errorf("read %q of %q", id, b)
		}
	})
}
