// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func fullHeader() OpenHeader {
	return OpenHeader{
		EndpointID: "ep_1", Scheme: "http", Host: "api.demo", Port: 8080, ClientAddr: "[fd00::7]:41234", TraceID: "t-1",
		Deadline: 5 * time.Second,
		Pod:      &PodIdentity{Namespace: "demo", Name: "curl", ServiceAccount: "default"},
	}
}

func TestHeader_RoundTrip(t *testing.T) {
	t.Parallel()
	truncated := fullHeader()
	truncated.Pod.Truncated = true
	notes, none, cut := fullHeader(), fullHeader(), fullHeader()
	notes.Pod.Annotations = map[string]string{"team": "a", "example.com/why": "two\nlines", "empty": ""}
	none.Pod.Annotations = map[string]string{}
	cut.Pod.AnnotationsCut = true
	for name, h := range map[string]OpenHeader{
		"full":                    fullHeader(),
		"smallest":                {EndpointID: "e"},
		"unnamed pod":             {EndpointID: "e", Pod: &PodIdentity{}},
		"truncated":               truncated,
		"annotations":             notes,
		"none of the annotations": none,
		"annotations too long":    cut,
		"port 65535":              {EndpointID: "e", Port: 65535},
		"of a trusted proxy":      {EndpointID: "e", TrustsForwarding: true},
		"of a relayed stream":     {EndpointID: "e", RelayID: 1<<63 + 1},
		"sealed":                  {EndpointID: "e", Sealed: true, Tried: "ep_1,ep_2"},
		"with a pair":             {EndpointID: "e", Sealed: true, PairID: 1<<63 + 2},
		"of a spare":              {EndpointID: "e", Sealed: true, SpareID: 1<<63 + 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := h.encode()
			if err != nil {
				t.Fatal(err)
			}
			r := bytes.NewReader(append(b, "client bytes"...))
			got, err := readHeader(r, func(int) {})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(h, got); d != "" {
				t.Error(d)
			}
			if rest, _ := io.ReadAll(r); string(rest) != "client bytes" {
				t.Errorf("the reader ate into the client's bytes: %q is left", rest)
			}
		})
	}
}

// TestHeader_WireFormat checks the bytes that other versions read and send: they may only change
// together with headerVersion.
func TestHeader_WireFormat(t *testing.T) {
	t.Parallel()
	h := fullHeader()
	h.Pod.Annotations, h.Pod.Truncated = map[string]string{"team": "a"}, true
	got, err := h.encode()
	if err != nil {
		t.Fatal(err)
	}
	const want = "\x01\x01\x00a\x01\x00\x04ep_1\x02\x00\bapi.demo\x04\x00\x0f[fd00::7]:41234\x05\x00\x03t-1" +
		"\n\x00\x04http" +
		"\a\x00\x04demo\b\x00\x04curl\t\x00\adefault\v\x00\t\x00\x04team\x00\x01a" +
		"\x03\x00\x02\x1f\x90\x06\x00\x04\x00\x00\x13\x88"
	if string(got) != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestHeader_TruncatesLongIdentity(t *testing.T) {
	t.Parallel()
	h := fullHeader()
	h.Pod.Name = strings.Repeat("p", 252) + "äöü"
	h.Pod.ServiceAccount = strings.Repeat("s", 100_000)
	b, err := h.encode()
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > headerLimit {
		t.Fatalf("%d bytes", len(b))
	}
	got, err := readHeader(bytes.NewReader(b), func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	want := PodIdentity{Namespace: "demo", Name: strings.Repeat("p", 252), ServiceAccount: strings.Repeat("s", 253),
		Truncated: true}
	if d := cmp.Diff(want, *got.Pod); d != "" {
		t.Error(d)
	}
	if h.Pod.Truncated || len(h.Pod.ServiceAccount) != 100_000 {
		t.Error("encoding changed the caller's identity")
	}
}

// TestHeader_HasRoomForAnnotations checks that a header with everything at its limit fits, and that
// annotations beyond their limit are omitted as a whole and flagged.
func TestHeader_HasRoomForAnnotations(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxAnnotationBytes)
	most := map[string]string{}
	for i := range maxAnnotations {
		key := fmt.Sprintf("%03d", i)
		most[key] = long[:maxAnnotationBytes/maxAnnotations-len(key)]
	}
	tooMany := maps.Clone(most)
	tooMany["000"], tooMany["y"] = "", ""
	for name, c := range map[string]struct {
		all map[string]string
		cut bool
	}{
		"at both limits":  {most, false},
		"one at 2 KiB":    {map[string]string{"a": long[1:]}, false},
		"a byte too long": {map[string]string{"a": long}, true},
		"one too many":    {tooMany, true},
	} {
		h := OpenHeader{
			EndpointID: long[:128], Host: long[:255], Port: 65535, Scheme: long[:16], ClientAddr: long[:128],
			TraceID: long[:128], Deadline: time.Hour,
			Pod: &PodIdentity{Namespace: long[:253], Name: long[:253], ServiceAccount: long[:253], Annotations: c.all},
		}
		b, err := h.encode()
		if err != nil {
			t.Fatal(err)
		}
		if h.Pod.Annotations == nil || h.Pod.AnnotationsCut {
			t.Errorf("%s: encoding changed the caller's identity", name)
		}
		got, err := readHeader(bytes.NewReader(b), func(int) {})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if c.cut {
			h.Pod.Annotations, h.Pod.AnnotationsCut = nil, true
		}
		if d := cmp.Diff(h, got); d != "" || len(b) > headerLimit {
			t.Errorf("%s: %d bytes: %s", name, len(b), d)
		}
	}
}

// TestHeader_CompatibleWithPreviousVersion checks that the previous version, which knows the tags
// up to 10 and flag 0 and skips the rest, reads the same pod without annotations. Its own headers
// are read as those of a pod with unknown annotations.
func TestHeader_CompatibleWithPreviousVersion(t *testing.T) {
	t.Parallel()
	const lastKnown = tagScheme
	h := fullHeader()
	h.Pod.Annotations = map[string]string{"team": "a"}
	b, err := h.encode()
	if err != nil {
		t.Fatal(err)
	}
	old := []byte{headerVersion, b[1] & flagTruncated, 0, 0}
	for fields := b[headerPrefix:]; len(fields) > 0; { // as its parseFields does
		size := 3 + int(binary.BigEndian.Uint16(fields[1:]))
		if fields[0] <= lastKnown {
			old = append(old, fields[:size]...)
		}
		fields = fields[size:]
	}
	if len(old) == len(b) || b[1]&flagTruncated != 0 {
		t.Fatalf("the annotations are not in a field of their own, or the pod reads as cut: %x", b)
	}
	binary.BigEndian.PutUint16(old[2:], uint16(len(old)-headerPrefix))
	got, err := readHeader(bytes.NewReader(old), func(int) {})
	if d := cmp.Diff(fullHeader(), got); d != "" || err != nil {
		t.Errorf("error %v: %s", err, d)
	}
}

func TestHeader_NamesEndpointByURL(t *testing.T) {
	t.Parallel()
	h := OpenHeader{Scheme: "http", Host: "api.demo", Port: 80}
	b, err := h.encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := readHeader(bytes.NewReader(b), func(int) {}); err != nil || !cmp.Equal(h, got) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestHeader_EncodeRefusesInvalidFields(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300)
	for want, h := range map[string]OpenHeader{
		"endpoint id is empty":      {Scheme: "http", Host: "api.demo"}, // and the URL is not whole
		"endpoint id has 300 bytes": {EndpointID: long},
		"host has 300 bytes":        {EndpointID: "e", Host: long},
		"client address has":        {EndpointID: "e", ClientAddr: long},
		"trace id has":              {EndpointID: "e", TraceID: long},
		"port 65536":                {EndpointID: "e", Port: 65536},
		"port -1":                   {EndpointID: "e", Port: -1},
		"host has a control":        {EndpointID: "e", Host: "a\r\nX-Admin: 1"},
	} {
		if _, err := h.encode(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
}

func TestHeader_SkipsUnknownFields(t *testing.T) {
	t.Parallel()
	b, err := fullHeader().encode()
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, 200, 0, 3, 'n', 'e', 'w', 0, 0, 0)
	b[1] |= 0x80 // and unknown flags
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)-headerPrefix))
	got, err := readHeader(bytes.NewReader(b), func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(fullHeader(), got); d != "" {
		t.Error(d)
	}
}

func TestHeader_RefusesMalformedBytes(t *testing.T) {
	t.Parallel()
	field := func(tag byte, value string) string {
		return string([]byte{tag, byte(len(value) >> 8), byte(len(value))}) + value
	}
	whole := func(fields string) string {
		return string([]byte{headerVersion, 0, byte(len(fields) >> 8), byte(len(fields))}) + fields
	}
	id := field(tagEndpointID, "e")
	for name, c := range map[string]struct{ in, want string }{
		"empty":           {"", "EOF"},
		"other version":   {"\x02\x00\x00\x00", "version 2 is unknown"},
		"too long":        {"\x01\x00\xff\xff", "at most 4092"},
		"cut off":         {"\x01\x00\x00\x09abc", "EOF"},
		"cut-off field":   {whole("\x01\x00\x09abc"), "a field is cut off"},
		"cut-off length":  {whole("\x01\x00"), "a field is cut off"},
		"no id":           {whole(field(tagHost, "h")), "endpoint id is missing"},
		"twice":           {whole(id + id), "appears twice"},
		"long id":         {whole(field(tagEndpointID, strings.Repeat("x", 129))), "129 bytes"},
		"long pod":        {whole(id + field(tagPodName, strings.Repeat("x", 254))), "254 bytes"},
		"odd port":        {whole(id + field(tagPort, "\x01")), "field 3 has 1 bytes"},
		"odd deadline":    {whole(id + field(tagDeadline, "\x01")), "field 6 has 1 bytes"},
		"control in host": {whole(id + field(tagHost, "a\nb")), "control character"},
		"half a note": {whole(id + field(tagPodName, "p") + field(tagPodAnnotations, "\x00\x01a\x00")),
			"annotations are cut off"},
		"note cut off": {whole(id + field(tagPodName, "p") + field(tagPodAnnotations, "\x00\x01a\x00\x05b")),
			"annotations are cut off"},
		"key cut off": {whole(id + field(tagPodName, "p") + field(tagPodAnnotations, "\x00\x09a")),
			"annotations are cut off"},
		"note twice": {
			whole(id + field(tagPodName, "p") + field(tagPodAnnotations, strings.Repeat("\x00\x01a\x00\x00", 2))),
			"appears twice"},
		"long notes": {whole(id + field(tagPodAnnotations, strings.Repeat("x", maxAnnotationField+1))),
			"annotations are too long"},
		"NUL in pod name": {whole(id + field(tagPodName, "a\x00")), "control character"},
	} {
		if _, err := readHeader(strings.NewReader(c.in), func(int) {}); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one that says %q", name, err, c.want)
		}
	}
}

func FuzzHeader(f *testing.F) {
	full, err := fullHeader().encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(full)
	noted := fullHeader()
	noted.Pod.Annotations, noted.Sealed, noted.PairID, noted.SpareID = map[string]string{"team": "a"}, true, 7, 8
	if b, err := noted.encode(); err == nil {
		f.Add(b)
	}
	f.Add([]byte("\x01\x00\x00\x04\x01\x00\x01e"))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := readHeader(bytes.NewReader(b), func(int) {})
		if err != nil {
			return
		}
		again, err := h.encode()
		if err != nil {
			t.Fatalf("what was decoded does not encode: %v", err)
		}
		h2, err := readHeader(bytes.NewReader(again), func(int) {})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(h, h2); d != "" {
			t.Error(d)
		}
	})
}

func FuzzTruncateIdentity(f *testing.F) {
	f.Add(strings.Repeat("ä", 200))
	f.Fuzz(func(t *testing.T, name string) {
		p := truncateIdentity(PodIdentity{Name: name})
		if len(p.Name) > identityLimit || !strings.HasPrefix(name, p.Name) || p.Truncated != (p.Name != name) {
			t.Errorf("%q was cut to %q, truncated %v", name, p.Name, p.Truncated)
		}
		if utf8.ValidString(name) && !utf8.ValidString(p.Name) {
			t.Errorf("%q was cut within a rune", name)
		}
	})
}

func TestParseHello(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   string
		code Code
	}{
		"good":                  {`{"type":"hello","protocol":1,"hello":{"role":"agent","token":"t"}}`, ""},
		"unknown fields":        {`{"type":"hello","protocol":1,"x":[1],"hello":{"role":"forwarder","y":{}}}`, ""},
		"newer":                 {`{"type":"hello","protocol":7,"hello":{"role":"agent"}}`, CodeVersion},
		"newer, another shape":  {`{"type":"hello","protocol":2,"hello":"all is new"}`, CodeVersion},
		"no version":            {`{"type":"hello","hello":{"role":"agent"}}`, CodeVersion},
		"no hello":              {`{"type":"hello","protocol":1}`, CodeInvalid},
		"another first message": {`{"type":"bind","bind":{"url":"http://a.b"}}`, CodeInvalid},
		"unknown role":          {`{"type":"hello","protocol":1,"hello":{"role":"root"}}`, CodeInvalid},
		"not an object":         {`[]`, CodeInvalid},
		"not JSON":              {`GET / HTTP/1.1`, CodeInvalid},
	} {
		h, err := parseHello([]byte(c.in))
		var e *Error
		switch {
		case c.code == "" && (err != nil || h == nil):
			t.Errorf("%s: %v", name, err)
		case c.code != "" && (!errors.As(err, &e) || e.Code != c.code || e.Msg == ""):
			t.Errorf("%s: error %v, want a sentence with code %s", name, err, c.code)
		}
	}
}

func TestParseMessage_NeedsContentOfType(t *testing.T) {
	t.Parallel()
	for _, typ := range []string{typeWelcome, typeError, typeStop, typeBind, typeBound, typeUnbind, typeDrain} {
		if _, err := parseMessage([]byte(`{"type":"` + typ + `"}`)); err == nil {
			t.Errorf("%s without content was taken", typ)
		}
	}
	if m, err := parseMessage([]byte(`{"type":"of a later version","news":1}`)); err != nil ||
		m.Type != "of a later version" {
		t.Errorf("an unknown type is an error: %v", err)
	}
}

func FuzzControlFrame(f *testing.F) {
	frame := func(m *message) []byte {
		b, err := json.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
	}
	f.Add(frame(&message{Type: typeHello, Protocol: 1, Hello: &Hello{Role: RoleAgent, Token: "t"}}))
	f.Add(frame(&message{Type: typeBind, ID: 1, Bind: &Bind{URL: "http://a.b"}}))
	f.Add(frame(&message{Type: typeStop, Error: &Error{Code: CodeStop}}))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, in []byte) {
		b, err := readFrame(bytes.NewReader(in), nil, helloLimit, func(int) error { return nil })
		if err != nil {
			return
		}
		if len(b) > helloLimit {
			t.Fatalf("read %d bytes", len(b))
		}
		if h, err := parseHello(b); err == nil && h.Role != RoleAgent && h.Role != RoleForwarder {
			t.Errorf("role %q", h.Role)
		}
		if m, err := parseMessage(b); err == nil && m.Type == typeBind && m.Bind == nil {
			t.Error("a bind without content")
		}
	})
}
