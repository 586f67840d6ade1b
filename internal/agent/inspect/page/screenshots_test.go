// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
	"github.com/fairlead-dev/fairlead/test/support/chromium"
)

var (
	screenshots = flag.String("screenshots", "", "write a picture of every page, in both themes, into this folder")
	// Not in docs: a picture of each page is enough there.
	phoneScreenshots = flag.Bool("phone-screenshots", false, "write pictures of 390 pixels, too")
)

// shownExchanges are exchanges as a person has them who works on a shop, newest last.
func shownExchanges() []*inspect.Exchange {
	var all []*inspect.Exchange
	add := func(method, target string, status int, contentType, body string, took time.Duration) *inspect.Exchange {
		e := exchange(fmt.Sprintf("3f9c21d4%08x", 0x1a0+len(all)), method, target, status, contentType, body)
		e.Start = testStart.Add(time.Duration(len(all)) * 1730 * time.Millisecond)
		e.EndpointURL, e.Duration, e.FirstByte = "http://api.shop", took, took*8/10
		e.Request.Header.Set("Host", "api.shop")
		e.Request.Header.Set("User-Agent", "Go-http-client/1.1")
		e.Request.Header.Set("X-Forwarded-For", "10.0.0.7")
		all = append(all, e)
		return e
	}
	add("GET", "/healthz", 204, "", "", 900*time.Microsecond)
	socket := add("GET", "/chat?room=7", 101, "", "", 83*time.Second)
	socket.FirstByte = 4 * time.Millisecond
	socket.Response.Header = http.Header{"Upgrade": {"websocket"}, "Connection": {"Upgrade"}}
	socket.Done, socket.Request.Header["Upgrade"] = false, []string{"websocket"}
	for i, text := range []string{`{"type":"hello","version":3}`, `{"type":"join","room":7}`,
		`{"type":"message","from":"ann","text":"Is the blue one still there?"}`, "\x00\x01\x02\x7fELF",
		`{"type":"message","from":"bo","text":"Yes, two of them."}`} {
		f := inspect.Frame{At: time.Duration(i*i) * 740 * time.Millisecond, FromClient: i%2 == 0,
			Kind: inspect.FrameText,
			Data: []byte(text), Size: int64(len(text))}
		if i == 3 {
			f.Kind = inspect.FrameBinary
		}
		socket.Frames = append(socket.Frames, f)
	}
	add("GET", "/products/42/picture", 200, "image/png", string(gradient(320, 200)), 31*time.Millisecond)
	order := add("POST", "/orders?dry_run=false&access_token="+secretQuery, 201, "application/json",
		`{"id":1207,"state":"accepted","items":[{"sku":"blue-42","count":2,"price":1995}],"token":"`+secretForm+`"}`,
		48*time.Millisecond)
	order.Request.Header.Set("Authorization", "Bearer "+secretBearer)
	order.Request.Header.Set("Content-Type", "application/json")
	order.Response.Header.Set("Set-Cookie", "sid="+secretCookie+"; HttpOnly")
	order.Request.Body = []byte(`{"customer":"ann@example.com","items":[{"sku":"blue-42","count":2}]}`)
	order.Request.BodySize = int64(len(order.Request.Body))
	upload := add("POST", "/products/42/picture", 413, "text/plain", "The picture is larger than 1 KiB.\n",
		5*time.Millisecond)
	upload.Request.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	upload.Request.Body = []byte(
		"--b\r\nContent-Disposition: form-data; name=\"title\"\r\n\r\nThe blue one\r\n--b\r\n" +
			"Content-Disposition: form-data; name=\"picture\"; filename=\"blue.png\"\r\nContent-Type: " +
			"image/png\r\n\r\n" +
			string(gradient(200, 120)) + "\r\n--b--\r\n")
	upload.Request.BodySize = int64(len(upload.Request.Body))
	add("GET", "/search?q=a+very+long+question+that+does+not+fit+into+one+line+of+the+list+whatever+its+width+may+"+
		"be+on+this+screen&page=2&sort=price&order=ascending", 200, "application/json", `{"found":0}`,
		312*time.Millisecond)
	broken := add("GET", "/reports/2026", 0, "", "", 30*time.Second)
	broken.Response, broken.FirstByte, broken.Error = nil, 0, "the upstream closed the connection before it answered"
	person := add("GET", "/admin", 403, "text/html", "<h1>Forbidden</h1>", 3*time.Millisecond)
	person.Caller = inspect.Caller{IP: "203.0.113.9", Person: "ann@example.com"}
	again := add("PUT", "/orders/1207", 500, "text/plain", "panic: no such order\n", 12*time.Millisecond)
	again.ReplayOf, again.Caller = order.ID, inspect.Caller{}
	open := add("GET", "/events", 0, "", "", 0)
	open.Response, open.Done = nil, false
	return all
}

// gradient returns a picture.
func gradient(width, height int) []byte {
	m := image.NewPaletted(image.Rect(0, 0, width, height), color.Palette{color.RGBA{28, 98, 133, 255},
		color.RGBA{116, 191, 226, 255}, color.RGBA{246, 247, 248, 255}})
	for i := range 3 {
		band := image.Rect(i*width/3, height*(2-i)/6, (i+1)*width/3, height)
		draw.Draw(m, band, image.NewUniform(m.Palette[i]), image.Point{}, draw.Src)
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// TestScreenshots renews docs/inspector: make dashboard-screenshots.
func TestScreenshots(t *testing.T) {
	if *screenshots == "" {
		t.Skip("only with -screenshots")
	}
	ctx := chromium.Start(t, true)
	all := shownExchanges()
	s := newSite(t, nil, all...)
	empty, full := newSite(t, nil), newSite(t, nil)
	for i := range 110 { // more than the list shows
		e := exchange(fmt.Sprintf("full-%d", i), http.MethodGet, fmt.Sprintf("/items/%d", i), 200, "application/json",
			"{}")
		e.Start = testStart.Add(time.Duration(i) * time.Millisecond)
		full.rec.add(e)
	}
	full.rec.dropped = 3 << 20
	shown := []struct {
		name, path string
		site       *site
	}{
		{"list", "/", s}, {"list-empty", "/", empty}, {"list-none", "/?path=nowhere", s}, {"list-full", "/", full},
		{"websocket", "/requests/" + all[1].ID, s}, {"picture", "/requests/" + all[2].ID, s},
		{"json", "/requests/" + all[3].ID, s}, {"multipart", "/requests/" + all[4].ID, s},
		{"failed", "/requests/" + all[6].ID, s}, {"replay", "/requests/" + all[3].ID + "/edit", s},
		{"curl", "/requests/" + all[3].ID + "/curl", s}, {"not-found", "/requests/none", s},
	}
	for _, theme := range []string{"light", "dark"} {
		for _, p := range shown {
			if p.name == "list-full" && !*phoneScreenshots {
				continue // large
			}
			b := &chromium.Tab{T: t, Ctx: ctx, Base: p.site.url}
			shoot(b, p.path, filepath.Join(*screenshots, p.name+"-"+theme+".png"), 1280, theme)
			if *phoneScreenshots {
				shoot(b, p.path, filepath.Join(*screenshots, p.name+"-"+theme+"-phone.png"), 390, theme)
			}
		}
	}
}

// shoot writes a picture of a page, at most 1,800 pixels high.
func shoot(b *chromium.Tab, path, file string, width int64, theme string) {
	b.T.Helper()
	b.Resize(width, 720, theme)
	b.Open(path)
	b.WaitUntil("the pictures", "[...document.images].every((i) => { i.loading = 'eager'; return i.complete; })")
	b.Resize(width, max(720, chromium.Eval[int64](b, "document.documentElement.scrollHeight")), theme)
	b.Screenshot(file, 1800)
}
