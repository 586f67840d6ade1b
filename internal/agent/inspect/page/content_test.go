// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"image"
	"image/png"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

var noMask = &masker{reveal: true}

func rendered(contentType string, body []byte) content {
	return render(body, contentType, false, noMask, "/image", 0)
}

func TestRender_ChoosesTheKind(t *testing.T) {
	t.Parallel()
	multipart := "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\none\r\n--x\r\n" +
		"Content-Disposition: form-data; name=\"f\"; filename=\"<b>.json\"\r\nContent-Type: application/json\r\n\r\n" +
		"{\"a\":1}\r\n--x--\r\n"
	for _, c := range []struct{ contentType, body, kind, text string }{
		{"", "", "", ""},
		{"application/json", `{"b":1,"a":[1.50,{}],"b":2}`, kindJSON,
			"{\n  \"b\": 1,\n  \"a\": [\n    1.50,\n    {}\n  ],\n  \"b\": 2\n}"},
		{"text/plain", ` {"a":1}`, kindJSON, "{\n  \"a\": 1\n}"},
		{"application/json", "{not json", kindText, "{not json"},
		{"application/vnd.api+json", `[]`, kindJSON, "[]"},
		{"text/html", "<script>alert(1)</script>", kindText, "<script>alert(1)</script>"},
		{"image/svg+xml", "<svg onload='alert(1)'/>", kindText, "<svg onload='alert(1)'/>"},
		{"image/png", "no picture", kindText, "no picture"},
		{"text/plain; charset=iso-8859-1", "caf\xe9", kindText, "café"},
		{"text/plain", "caf\xe9", kindText, "café"},
		{"application/octet-stream", "a\x00b", kindHex, "00000000  61 00 62"},
		{"application/x-www-form-urlencoded", "a=1&b=x+y%26&&c", kindForm, ""},
		{"application/x-www-form-urlencoded", "a=%zz", kindText, "a=%zz"},
		{"multipart/form-data; boundary=x", multipart, kindMultipart, ""},
		{"multipart/form-data; boundary=other", multipart, kindText, "--x"},
		{"multipart/form-data", multipart, kindText, "--x"},
	} {
		got := rendered(c.contentType, []byte(c.body))
		if got.Kind != c.kind || !strings.HasPrefix(got.Text, c.text) {
			t.Errorf("%s %q: %s %q, want %s %q", c.contentType, c.body, got.Kind, got.Text, c.kind, c.text)
		}
	}
	form := rendered("application/x-www-form-urlencoded", []byte("a=1&b=x+y%26&&c"))
	if len(form.Fields) != 3 || form.Fields[1] != (field{"b", "x y&"}) || form.Fields[2] != (field{"c", ""}) {
		t.Errorf("fields: %v", form.Fields)
	}
	parts := rendered("multipart/form-data; boundary=x", []byte(multipart)).Parts
	if len(parts) != 2 || parts[0].Name != "a" || parts[0].Content.Text != "one" || parts[1].File != "<b>.json" ||
		parts[1].Content.Kind != kindJSON {
		t.Errorf("parts: %+v", parts)
	}
}

func TestRender_BoundsWhatAPageHolds(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	wide := "[" + strings.Repeat("1,", 1<<20) + "1]"
	for name, body := range map[string]string{"deep": deep, "wide": wide, "long": strings.Repeat("x", 2<<20),
		"comb": strings.Repeat("[", 4000) + strings.Repeat("1,", 100_000) + "1" + strings.Repeat("]", 4000)} {
		if got := rendered("application/json", []byte(body)); len(got.Text) > maxText {
			t.Errorf("%s: %d bytes", name, len(got.Text))
		}
	}
	if got := rendered("", bytes.Repeat([]byte{0, 1, 2, 255}, 1<<18)); len(got.Text) > 6*maxHex || len(got.Notes) == 0 {
		t.Errorf("hex: %d bytes, notes %v", len(got.Text), got.Notes)
	}
	form := rendered("application/x-www-form-urlencoded", []byte(strings.Repeat("a=b&", 10_000)))
	if len(form.Fields) != maxFields {
		t.Errorf("a form has %d fields", len(form.Fields))
	}
	many := rendered("multipart/mixed; boundary=x", []byte(strings.Repeat("--x\r\n\r\na\r\n", 1000)+"--x--"))
	if len(many.Parts) != maxParts {
		t.Errorf("a body has %d parts", len(many.Parts))
	}
}

func pngOf(width, height int) []byte {
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, width, height))); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func TestPicture_IsShownByItsBytes(t *testing.T) {
	t.Parallel()
	small, large := pngOf(3, 2), pngOf(3, 2)
	copy(large[16:], []byte{0x00, 0x01, 0, 0, 0x00, 0x01, 0, 0}) // 65536 by 65536
	binary.BigEndian.PutUint32(large[29:], crc32.ChecksumIEEE(large[12:29]))
	if p := pictureOf(small, "/p"); p == nil || *p != (picture{"/p", "png", 3, 2}) {
		t.Errorf("a picture: %+v", p)
	}
	if p := pictureOf(large, "/p"); p == nil || *p != (picture{"", "png", 1 << 16, 1 << 16}) {
		t.Errorf("a picture that would take gigabytes: %+v", p)
	}
	if p := pictureOf([]byte("<svg/>"), "/p"); p != nil {
		t.Errorf("SVG is a picture: %+v", p)
	}
	webp := append([]byte("RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00"), 9, 0, 0, 4, 0, 0)
	if p := pictureOf(webp, "/p"); p == nil || p.Width != 10 || p.Height != 5 {
		t.Errorf("WebP: %+v", p)
	}
}

func TestImage_AnswersOnlyPictures(t *testing.T) {
	t.Parallel()
	picture := exchange("png", "GET", "/p", 200, "text/html", string(pngOf(4, 4)))
	parts := exchange("parts", "GET", "/p", 200, "multipart/form-data; boundary=x",
		"--x\r\n\r\n<script>\r\n--x\r\nContent-Type: image/png\r\n\r\n"+string(pngOf(5, 5))+"\r\n--x--\r\n")
	s := newSite(t, nil, picture, parts, exchange("html", "GET", "/p", 200, "image/png", "<script>alert(1)</script>"))
	for path, want := range map[string]int{"/requests/png/response/image": 200, "/requests/html/response/image": 404,
		"/requests/png/request/image": 404, "/requests/parts/response/image?part=1": 200,
		"/requests/parts/response/image?part=0": 404, "/requests/parts/response/image?part=x": 404,
		"/requests/parts/response/image?part=99": 404} {
		res, _ := s.do(http.MethodGet, path, "")
		if res.StatusCode != want {
			t.Errorf("GET %s: %s, want %d", path, res.Status, want)
		}
		if want == 200 && (res.Header.Get("Content-Type") != "image/png" ||
			!strings.Contains(res.Header.Get("Content-Security-Policy"), "sandbox")) {
			t.Errorf("GET %s: %v", path, res.Header)
		}
	}
	if body := s.get("/requests/parts"); !strings.Contains(body, `src="/requests/parts/response/image?part=1"`) {
		t.Error("the page does not show the picture of a part")
	}
}

func FuzzRender(f *testing.F) {
	f.Add("application/json", []byte(`{"a":[1,2]}`), false)
	f.Add("multipart/form-data; boundary=x", []byte("--x\r\n\r\na\r\n--x--"), false)
	f.Add("application/x-www-form-urlencoded", []byte("a=b"), true)
	f.Add("image/png", pngOf(1, 1), false)
	f.Add("text/plain; charset=latin1", []byte("\xff\xfe"), false)
	f.Fuzz(func(t *testing.T, contentType string, body []byte, cut bool) {
		m := &inspect.Message{Header: http.Header{"Content-Type": {contentType}}, Body: body,
			BodySize:  int64(len(body)),
			Truncated: cut}
		c := renderBody(m, noMask, "Body", "/image")
		if len(c.Text) > maxText || len(c.Parts) > maxParts || len(c.Fields) > maxFields {
			t.Error("a body is not bounded")
		}
		if len(body) > 0 && c.Kind == "" {
			t.Error("a body is not shown")
		}
	})
}

func FuzzIndentJSON(f *testing.F) {
	f.Add(`{"a":[1,-2.5e+10,"x\"y\\"],"b":{},"c":[ ]}`)
	f.Add(`"a"`)
	f.Fuzz(func(t *testing.T, text string) {
		if !json.Valid([]byte(text)) {
			return
		}
		var want, got bytes.Buffer
		must.Succeed(t, json.Compact(&want, []byte(text)))
		if err := json.Compact(&got, []byte(indentJSON(text, 1<<30))); err != nil {
			t.Fatalf("indented, it is no longer JSON: %v", err)
		}
		if got.String() != want.String() {
			t.Errorf("%q became %q", want.String(), got.String())
		}
	})
}
