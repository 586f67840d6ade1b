// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"github.com/google/go-cmp/cmp"
)

func fullLine() RequestLine {
	return RequestLine{
		EndpointID: "ep_2a7pKd0QmXzYv3bN1cT", Method: "GET", Path: "/api/v1/things/42", Code: "ERR_FL_2004",
		Status:   502,
		Duration: 1234567,
		At:       time.Unix(1795230000, 123456789).UTC(),
	}
}

// encodeLines returns a message of lines, without its length, as they are sent when all of them
// wait.
func encodeLines(t testing.TB, lines ...RequestLine) []byte {
	t.Helper()
	rest := make(chan RequestLine, len(lines))
	for _, l := range lines[1:] {
		rest <- l
	}
	frame := appendLines(nil, &lines[0], rest)
	if n := int(binary.BigEndian.Uint32(frame)); n != len(frame)-lengthSize || n > messageLimit || len(rest) > 0 {
		t.Fatalf("a frame of %d bytes with length %d; %d lines are left", len(frame), n, len(rest))
	}
	return frame[lengthSize:]
}

func decodeLines(message []byte) ([]RequestLine, error) {
	var all []RequestLine
	var r lineReader
	err := r.read(message, func(l RequestLine) { all = append(all, l) })
	return all, err
}

func TestRequestLines_RoundTrip(t *testing.T) {
	t.Parallel()
	other := fullLine()
	other.Path, other.Code, other.At = "/", "", time.Time{}
	for name, lines := range map[string][]RequestLine{
		"full":      {fullLine()},
		"empty":     {{}},
		"several":   {fullLine(), other, other, {}, fullLine()},
		"any bytes": {{EndpointID: "ep\x00\xff", Method: "\xc3", Path: "/\x1b[2J\n\u2028\xf0\x9f", Code: "<&>"}},
		"the longest": {{EndpointID: strings.Repeat("e", 128), Method: strings.Repeat("m", 32),
			Path: strings.Repeat("p", 512), Code: strings.Repeat("c", 64)}},
		"the most": {{Status: math.MaxUint16, Duration: math.MaxInt64,
			At: time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC)}},
		"the least":   {{Status: 1, Duration: math.MinInt64, At: time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC)}},
		"before 1970": {{At: time.Unix(-1, 999999999).UTC()}},
	} {
		message := encodeLines(t, lines...)
		got, err := decodeLines(message)
		if d := cmp.Diff(lines, got); d != "" || err != nil || !isRequestLines(message) {
			t.Errorf("%s: error %v: %s", name, err, d)
		}
	}
}

func TestRequestLines_RoundTripOfRandomValues(t *testing.T) {
	t.Parallel()
	survives := func(id, method, path, code []byte, status uint16, duration, seconds int64, nanoseconds uint32) bool {
		at := time.Unix(seconds%(latestLine+1), int64(nanoseconds)%1e9)
		l := RequestLine{EndpointID: string(id), Method: string(method), Path: string(bytes.Repeat(path, 20)),
			Code: string(code), Status: int(status), Duration: time.Duration(duration), At: at}
		want := l
		want.EndpointID, want.Method, want.Path, want.Code = truncateText(l.EndpointID, 128),
			truncateText(l.Method, 32),
			truncateText(l.Path, 512), truncateText(l.Code, 64)
		if want.At = at.UTC(); at.Unix() < earliestLine {
			want.At = time.Time{}
		}
		got, err := decodeLines(encodeLines(t, l, l))
		return err == nil && cmp.Diff([]RequestLine{want, want}, got) == ""
	}
	if err := quick.Check(survives, &quick.Config{MaxCount: 1000}); err != nil {
		t.Error(err)
	}
}

func TestRequestLines_TruncateLongTexts(t *testing.T) {
	t.Parallel()
	east := time.FixedZone("east", 5*3600)
	for name, c := range map[string]struct{ in, want RequestLine }{
		"texts": {
			RequestLine{EndpointID: strings.Repeat("e", 300), Method: strings.Repeat("m", 300),
				Path: strings.Repeat("p", 100_000), Code: strings.Repeat("c", 300)},
			RequestLine{EndpointID: strings.Repeat("e", 128), Method: strings.Repeat("m", 32),
				Path: strings.Repeat("p", 512),
				Code: strings.Repeat("c", 64)},
		},
		"not within a rune": {RequestLine{Path: strings.Repeat("x", 511) + "äö"},
			RequestLine{Path: strings.Repeat("x", 511)}},
		"a rune of four": {RequestLine{Path: strings.Repeat("x", 509) + "😀"},
			RequestLine{Path: strings.Repeat("x", 509)}},
		"a negative status":          {RequestLine{Status: -1, Path: "/"}, RequestLine{Path: "/"}},
		"a status that is too large": {RequestLine{Status: 70_000}, RequestLine{Status: 65535}},
		"a time out of range":        {RequestLine{At: time.Unix(math.MaxInt64, 0), Path: "/"}, RequestLine{Path: "/"}},
		"a time somewhere else": {RequestLine{At: time.Unix(1, 5).In(east)},
			RequestLine{At: time.Unix(1, 5).UTC()}},
		"a time with a monotonic one": {RequestLine{At: time.Unix(1, 0).Add(time.Nanosecond)},
			RequestLine{At: time.Unix(1, 1).UTC()}},
	} {
		got, err := decodeLines(encodeLines(t, c.in))
		if err != nil || len(got) != 1 || got[0] != c.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// wireField encodes a field as a peer may send it.
func wireField(tag byte, value string) string {
	return string([]byte{tag, byte(len(value) >> 8), byte(len(value))}) + value
}

func wireLine(fields ...string) string {
	all := strings.Join(fields, "")
	return string([]byte{byte(len(all) >> 8), byte(len(all))}) + all
}

func wireTime(seconds int64, nanoseconds uint32) string {
	return string(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, uint64(seconds)), nanoseconds))
}

// TestRequestLines_WireFormat checks the bytes of docs/reference/protocol/messages.md.
func TestRequestLines_WireFormat(t *testing.T) {
	t.Parallel()
	l := RequestLine{EndpointID: "ep_1", Method: "GET", Path: "/", Status: 200, Duration: time.Millisecond,
		At: time.Unix(1, 2)}
	want := "\x00\x00\x00\x33\x01\x00\x30" + "\x01\x00\x04ep_1" + "\x02\x00\x03GET" + "\x03\x00\x01/" +
		"\x05\x00\x02\x00\xc8" + "\x06\x00\x08\x00\x00\x00\x00\x00\x0f\x42\x40" +
		"\x07\x00\x0c\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x02"
	if got := string(appendLines(nil, &l, nil)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestRequestLines_SkipUnknownFields(t *testing.T) {
	t.Parallel()
	want := fullLine()
	known := string(encodeLines(t, want))[1+linePrefix:]
	for name, line := range map[string]string{
		"behind":      wireLine(known, wireField(8, "new"), wireField(200, ""), wireField(200, "again")),
		"before":      wireLine(wireField(0, strings.Repeat("x", 5000)), known),
		"other order": wireLine(wireField(tagLineStatus, "\x00\xc8"), wireField(tagLineEndpointID, "e")),
	} {
		expected := want
		if name == "other order" {
			expected = RequestLine{EndpointID: "e", Status: 200}
		}
		got, err := decodeLines([]byte("\x01" + line + wireLine()))
		if d := cmp.Diff([]RequestLine{expected, {}}, got); d != "" || err != nil {
			t.Errorf("%s: error %v: %s", name, err, d)
		}
	}
}

// hostileLines are malformed messages with their errors.
var hostileLines = map[string]struct{ in, want string }{
	"no lines":           {"", "has none"},
	"half a length":      {"\x00", "line 1 is cut off"},
	"a line cut off":     {"\x00\x09abc", "line 1 is cut off"},
	"the second cut off": {wireLine() + "\xff\xff", "line 2 is cut off"},
	"too many":           {strings.Repeat(wireLine(), maxLines+1), "more than 64"},
	"a field cut off":    {wireLine("\x01\x00\x09abc"), "line 1: a field is cut off"},
	"a field's length":   {wireLine("\x01\x00"), "a field is cut off"},
	"an unknown cut off": {wireLine("\xc8\xff\xff"), "a field is cut off"},
	"twice":              {wireLine(wireField(tagLinePath, "/"), wireField(tagLinePath, "/")), "field 3 appears twice"},
	"a long id": {wireLine(wireField(tagLineEndpointID, strings.Repeat("x", 129))),
		"the endpoint id has 129 bytes, at most 128"},
	"a long method": {wireLine(wireField(tagLineMethod, strings.Repeat("x", 33))),
		"the method has 33 bytes, at most 32"},
	"a long path": {wireLine() + wireLine(wireField(tagLinePath, strings.Repeat("x", 513))),
		"line 2: the path has 513 bytes, at most 512"},
	"a long code":     {wireLine(wireField(tagLineCode, strings.Repeat("x", 65))), "the code has 65 bytes, at most 64"},
	"an odd status":   {wireLine(wireField(tagLineStatus, "1")), "field 5 has 1 bytes"},
	"an odd duration": {wireLine(wireField(tagLineDuration, "1234567")), "field 6 has 7 bytes"},
	"an odd time":     {wireLine(wireField(tagLineAt, "")), "field 7 has 0 bytes"},
	"nanoseconds":     {wireLine(wireField(tagLineAt, wireTime(1, 1e9))), "1 s and 1000000000 ns is no time"},
	"the year 10000":  {wireLine(wireField(tagLineAt, wireTime(latestLine+1, 0))), "is no time"},
	"the year 0":      {wireLine(wireField(tagLineAt, wireTime(earliestLine-1, 0))), "is no time"},
}

func TestRequestLines_RefuseMalformed(t *testing.T) {
	t.Parallel()
	for name, c := range hostileLines {
		if _, err := decodeLines([]byte("\x01" + c.in)); err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.HasPrefix(err.Error(), "request lines: ") {
			t.Errorf("%s: error %v, want one that says %q", name, err, c.want)
		}
	}
	got, err := decodeLines([]byte("\x01" + wireLine(wireField(tagLinePath, "/a")) + "\x00"))
	if err == nil || len(got) != 1 || got[0].Path != "/a" {
		t.Errorf("the line before one that is cut off: %+v, %v", got, err)
	}
}

func FuzzRequestLines(f *testing.F) {
	f.Add(encodeLines(f, fullLine(), RequestLine{}, fullLine()))
	f.Add([]byte("\x01" + wireLine(wireField(200, "new"), wireField(tagLinePath, "/\xff"))))
	for _, c := range hostileLines {
		f.Add([]byte("\x01" + c.in))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		if !isRequestLines(message) {
			return
		}
		lines, err := decodeLines(message)
		if len(lines) > maxLines {
			t.Fatalf("%d lines", len(lines))
		}
		for i := 0; i < len(lines); {
			rest := make(chan RequestLine, len(lines))
			for _, l := range lines[i+1:] {
				rest <- l
			}
			frame := appendLines(nil, &lines[i], rest)
			again, err := decodeLines(frame[lengthSize:])
			if err != nil || len(frame) > maxSmallLines+1024 {
				t.Fatalf("what was decoded is %d bytes encoded: %v", len(frame), err)
			}
			if d := cmp.Diff(lines[i:i+len(again)], again); d != "" {
				t.Fatal(d)
			}
			i += len(again)
		}
		if err == nil && len(lines) == 0 {
			t.Error("a message without a line was taken")
		}
	})
}

// TestRequestLines_BurstIsFewMessages checks that waiting lines are sent together, in a message
// that is a small frame for the multiplexer.
func TestRequestLines_BurstIsFewMessages(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lines, messages int
		path            string
	}{
		"one": {1, 1, "/"}, "as many as fit": {64, 1, "/"}, "one more": {65, 2, "/"}, "many": {200, 4, "/"},
		"long ones": {100, 8, strings.Repeat("x", 1000)},
	} {
		waiting := make(chan RequestLine, c.lines)
		for i := range c.lines {
			waiting <- RequestLine{EndpointID: fmt.Sprint(i), Path: c.path}
		}
		var messages int
		var got []RequestLine
		var b []byte
		for len(waiting) > 0 {
			l := <-waiting
			b = appendLines(b[:0], &l, waiting)
			lines, err := decodeLines(b[lengthSize:])
			if err != nil || len(b) > 8<<10 {
				t.Fatalf("%s: %d bytes, error %v", name, len(b), err)
			}
			got = append(got, lines...)
			messages++
		}
		if messages != c.messages || len(got) != c.lines {
			t.Errorf("%s: %d lines in %d messages, want %d in %d", name, len(got), messages, c.lines, c.messages)
		}
		for i, l := range got {
			if l.EndpointID != fmt.Sprint(i) {
				t.Fatalf("%s: line %d is %s", name, i, l.EndpointID)
			}
		}
	}
}

func TestRequestLines_DoNotAllocate(t *testing.T) {
	// Not parallel: it counts the process' allocations.
	var b []byte
	var r lineReader
	line := fullLine()
	take := func(RequestLine) {}
	if n := testing.AllocsPerRun(1000, func() { b = appendLines(b[:0], &line, nil) }); n != 0 {
		t.Errorf("%v allocations to encode a line", n)
	}
	if n := testing.AllocsPerRun(1000, func() { _ = r.read(b[lengthSize:], take) }); n != 0 {
		t.Errorf("%v allocations to decode a line like the one before", n)
	}
}

func BenchmarkRequestLine(b *testing.B) {
	line := fullLine()
	line.Code = ""
	b.Run("encode", func(b *testing.B) {
		var buf []byte
		b.ReportAllocs()
		for b.Loop() {
			buf = appendLines(buf[:0], &line, nil)
		}
		b.ReportMetric(float64(len(buf)), "bytes")
	})
	b.Run("decode", func(b *testing.B) {
		other := line
		other.Path = "/another"
		messages := [][]byte{encodeLines(b, line), encodeLines(b, other)} // each has a path of its own
		var r lineReader
		take := func(RequestLine) {}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if err := r.read(messages[i%2], take); err != nil {
				b.Fatal(err)
			}
		}
	})
}
