// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
)

const (
	upgradeRequest = "GET /ws HTTP/1.1\r\nUpgrade: websocket\r\n\r\n"
	upgradeAnswer  = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\n\r\n"
)

// frame returns the bytes of a frame; from a client it is masked.
func frame(first byte, fromClient bool, payload string) string {
	b := []byte{first}
	mask := byte(0)
	if fromClient {
		mask = 0x80
	}
	switch n := len(payload); {
	case n < 126:
		b = append(b, mask|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, mask|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, mask|127), uint64(n))
	}
	if !fromClient {
		return string(b) + payload
	}
	key := [4]byte{1, 2, 3, 4}
	b = append(b, key[:]...)
	for i := range len(payload) {
		b = append(b, payload[i]^key[i&3])
	}
	return string(b)
}

func TestWebSocket_RecordsFrames(t *testing.T) {
	t.Parallel()
	for _, piece := range []int{0, 1, 3} {
		r := newRecorder(t)
		w := newWire(r, piece)
		w.client(upgradeRequest)
		w.server(upgradeAnswer + frame(0x81, false, "hello"))
		w.client(frame(0x81, true, "you") + frame(0x02, true, "\x00\xff") + frame(0x80, true, "rest"))
		w.server(frame(0x89, false, "") + frame(0x81, false, strings.Repeat("x", 300)))
		w.client(frame(0x8a, true, "") + frame(0x88, true, "\x03\xe8bye"))
		w.c.end(nil)
		want := `GET /ws "" -> 101 "" <text "hello" >text "you" >binary "\x00\xff" >binary "rest" <ping "" <text "` +
			strings.Repeat("x", 300) + `" >pong "" >close "\x03\xe8bye"`
		if got := summary(awaitDone(t, r, 1)[0]); got != want {
			t.Errorf("in pieces of %d: got %s\nwant %s", piece, got, want)
		}
	}
}

// TestWebSocket_FrameOfOneGiB checks that such a frame is counted, and hardly copied.
func TestWebSocket_FrameOfOneGiB(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	w := newWire(r, 0)
	peak := int64(0)
	w.client(upgradeRequest)
	w.server(upgradeAnswer + "\x82\x7f\x00\x00\x00\x00\x40\x00\x00\x00")
	part := strings.Repeat("x", 64<<10)
	for i := range 1 << 30 / len(part) {
		w.server(part)
		if i < 4 {
			await(t, r, "empty queue", func() bool { return r.queued.Load() == 0 })
		}
		peak = max(peak, r.queued.Load())
	}
	w.server(frame(0x81, false, "after"))
	w.c.end(nil)
	e := awaitDone(t, r, 1)[0]
	if len(e.Frames) != 2 || e.Frames[0].Size != 1<<30 || len(e.Frames[0].Data) != maxFrameData ||
		string(e.Frames[1].Data) != "after" || r.Dropped() > 0 || e.Error != "" {
		t.Errorf("%d frames, dropped %d, error %q", len(e.Frames), r.Dropped(), e.Error)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.memory > maxFrameMemory || peak > maxQueued {
		t.Errorf("%d bytes are kept, %d were queued", r.memory, peak)
	}
}

func TestWebSocket_KeepsNewestFrames(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	w := newWire(r, 0)
	w.client(upgradeRequest)
	w.server(upgradeAnswer)
	const count = 3 * maxFrames
	for i := range count {
		w.server(frame(0x81, false, fmt.Sprint(i)))
	}
	w.c.end(nil)
	e := awaitDone(t, r, 1)[0]
	if last := string(e.Frames[len(e.Frames)-1].Data); last != fmt.Sprint(count-1) ||
		e.FramesDropped+len(e.Frames) != count || len(e.Frames) != maxFrames {
		t.Errorf("%d frames up to %s, %d dropped", len(e.Frames), last, e.FramesDropped)
	}
}

func TestWebSocket_Decompresses(t *testing.T) {
	t.Parallel()
	r := newRecorder(t)
	w := newWire(r, 0)
	w.client(upgradeRequest)
	w.server("HTTP/1.1 101 x\r\nUpgrade: websocket\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n")
	var out bytes.Buffer
	deflate, _ := flate.NewWriter(&out, flate.BestCompression)
	want := "GET /ws \"\" -> 101 \"\""
	for _, message := range []string{`{"greeting":"hello"}`, `{"greeting":"hello again"}`, `{"greeting":"hello"}`} {
		out.Reset()
		_, _ = deflate.Write([]byte(message))
		_ = deflate.Flush()
		payload := strings.TrimSuffix(out.String(), "\x00\x00\xff\xff")
		w.server(frame(0x41, false, payload[:2]) + frame(0x80, false, payload[2:]))
		want += fmt.Sprintf(" <text %q <text %q", "", message)
	}
	w.c.end(nil)
	if got := summary(awaitDone(t, r, 1)[0]); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// FuzzWebSocket checks what FuzzHTTP1 does, of a connection that was upgraded.
func FuzzWebSocket(f *testing.F) {
	f.Add([]byte(frame(0x81, true, "hello")), []byte(frame(0x02, false, "a")+frame(0x80, false, "b")), 3)
	f.Add([]byte(frame(0xc1, true, "\xaaV\x00")), []byte("\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff"), 0)
	f.Fuzz(func(t *testing.T, client, server []byte, piece int) {
		r := New()
		defer r.Close()
		w := newWire(r, min(max(piece, 0), 1<<20))
		w.client(upgradeRequest)
		w.server("HTTP/1.1 101 x\r\nUpgrade: websocket\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n")
		w.client(string(client))
		w.server(string(server))
		w.c.end(nil)
		memory := int64(0)
		for _, e := range awaitDone(t, r, 1) {
			for _, fr := range e.Frames {
				memory += frameCost(fr)
				if len(fr.Data) > maxFrameData {
					t.Errorf("a frame has %d bytes", len(fr.Data))
				}
			}
		}
		if memory > maxFrameMemory {
			t.Errorf("the frames have %d bytes", memory)
		}
	})
}

func TestInflater_StopsAtBombs(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	deflate, _ := flate.NewWriter(&out, flate.BestCompression)
	_, _ = deflate.Write(make([]byte, 50<<20))
	_ = deflate.Flush()
	d := &inflater{}
	if got := d.frame(out.Bytes(), int64(out.Len()), true); got != nil || !d.broken {
		t.Errorf("decompressed %d bytes", len(got))
	}
}
