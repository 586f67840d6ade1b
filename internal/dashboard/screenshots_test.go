// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

var (
	screenshots = flag.String("screenshots", "", "write a picture of every page, in both themes, into this folder")
	shotWidth   = flag.Int64("screenshot-width", 1280, "width of the pictures")
)

// shownPages are the pages that there are, by the name of their picture. Tests of the whole look at each.
func shownPages(f *fake) []shownPage {
	policy := "/ui/traffic-policy/"
	return []shownPage{
		{"overview", "/ui/", ""},
		{"endpoints", "/ui/endpoints", ""},
		{"endpoint", "/ui/endpoints/" + f.endpoints[4].ID, ""},
		{"endpoint-offline", "/ui/endpoints/" + f.endpoints[2].ID, ""},
		{"kubernetes-operators", "/ui/kubernetes-operators", ""},
		{"kubernetes-operator", "/ui/kubernetes-operators/" + f.ops[1].ID, ""},
		{"backends", "/ui/backends", ""},
		{"backend", "/ui/backends/" + f.backends[3].ID, ""},
		{"backend-tunnel-group", "/ui/backends/" + f.backends[0].ID, ""},
		{"backend-http-response", "/ui/backends/" + f.backends[2].ID, ""},
		{"agents", "/ui/agents", ""},
		{"agent", "/ui/agents/" + f.agents[0].ID, ""},
		{"identities", policy + "identities", ""},
		{"identities-none", policy + "identities?q=nobody-at-all", ""},
		{"identity", policy + "identities/" + f.users[0].ID, ""},
		{"session", policy + "sessions/" + f.sessions[0].ID, ""},
		{"revoke", policy + "identities/" + f.users[0].ID + "/revoke", ""},
		{"revoke-dialog", policy + "identities", "a[href*='" + f.users[0].ID + "/revoke']"},
		{"api-keys", "/ui/api-keys", ""},
		{"api-key-new", "/ui/api-keys/new", ""},
		{"authtokens", "/ui/authtokens", ""},
		{"authtoken-new", "/ui/authtokens/new", ""},
		{"events", "/ui/events?type=endpoint.updated", ""},
		{"not-found", "/ui/endpoints/ep-0000000000000000000000000z", ""},
	}
}

type shownPage struct {
	name, path string
	press      string // opens a dialog
}

// TestScreenshots renews docs/dashboard: make dashboard-screenshots.
func TestScreenshots(t *testing.T) {
	if *screenshots == "" {
		t.Skip("only with -screenshots")
	}
	f := newFake(time.Now())
	srv := dashboardOf(t, f, func(o *Options) { o.Clock = time.Now })
	b := &tab{t, chromium(t), localhost(srv.URL)}
	shoot := func(name string) {
		picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(*screenshots, name+".png"), fewColours(t, picture), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, theme := range []string{"light", "dark"} {
		b.size(*shotWidth, max(640, *shotWidth*9/16), theme)
		b.open("/ui/sign-in")
		shoot("sign-in-" + theme)
	}
	b.signIn(signedInAs(t, srv, "flk_admin"))
	for _, theme := range []string{"light", "dark"} {
		b.size(*shotWidth, max(640, *shotWidth*9/16), theme)
		for _, p := range shownPages(f) {
			b.open(p.path)
			if p.press != "" {
				eval[bool](b, fmt.Sprintf("(document.querySelector(%q).click(), true)", p.press))
				b.until("the dialog", "document.querySelector('dialog[open] form')")
			}
			shoot(p.name + "-" + theme)
		}
	}
}

// fewColours makes a picture small: pages have few colours, and their text many in between that nobody tells apart.
func fewColours(t *testing.T, picture []byte) []byte {
	t.Helper()
	img, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	count := map[color.RGBA]int{}
	for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y++ {
		for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x++ {
			count[coarse(img.At(x, y), 0)]++
		}
	}
	bits := 0
	for ; bits < 6; bits++ {
		fewer := map[color.RGBA]bool{}
		for c := range count {
			fewer[coarse(c, bits)] = true
		}
		if len(fewer) <= 256 {
			break
		}
	}
	palette, place := color.Palette{}, map[color.RGBA]uint8{}
	small := image.NewPaletted(img.Bounds(), nil)
	for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y++ {
		for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x++ {
			c := coarse(img.At(x, y), bits)
			if _, known := place[c]; !known {
				place[c], palette = uint8(len(palette)), append(palette, likeliest(count, c, bits))
			}
			small.SetColorIndex(x, y, place[c])
		}
	}
	small.Palette = palette
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func coarse(c color.Color, bits int) color.RGBA {
	r, g, b, _ := c.RGBA()
	cut := func(v uint32) uint8 { return uint8(v>>8) >> bits << bits }
	return color.RGBA{cut(r), cut(g), cut(b), 255}
}

// likeliest is the colour that stands most often among those that became one.
func likeliest(count map[color.RGBA]int, like color.RGBA, bits int) color.RGBA {
	best, most := like, 0
	for c, n := range count {
		if coarse(c, bits) == like && n > most {
			best, most = c, n
		}
	}
	return best
}
