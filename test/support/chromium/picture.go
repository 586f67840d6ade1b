// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chromium

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"slices"

	"github.com/chromedp/chromedp"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// Screenshot writes a picture of the whole page into a PNG file, cut to maxHeight pixels. It keeps
// the 256 most frequent colours and replaces every other by the nearest of them.
func (b *Tab) Screenshot(file string, maxHeight int) {
	b.T.Helper()
	picture, err := chromedp.Run(b.Ctx, chromedp.FullScreenshot(100))
	must.Succeed(b.T, err)
	img, err := png.Decode(bytes.NewReader(picture))
	must.Succeed(b.T, err)
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	must.Succeed(b.T, encoder.Encode(&out, reduceColours(img, maxHeight)))
	must.Succeed(b.T, os.WriteFile(file, out.Bytes(), 0o644))
}

func reduceColours(img image.Image, maxHeight int) image.Image {
	bounds, count := img.Bounds(), map[color.RGBA]int{}
	bounds.Max.Y = min(bounds.Max.Y, bounds.Min.Y+maxHeight)
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(img.At(x, y)).(color.RGBA) }
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			count[at(x, y)]++
		}
	}
	weight := func(c color.RGBA) int { // saturated colours are few, and carry meaning
		return count[c] * (1 + int(max(c.R, c.G, c.B)) - int(min(c.R, c.G, c.B)))
	}
	often := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int {
		return cmp.Or(weight(b)-weight(a), int(a.R)-int(b.R), int(a.G)-int(b.G), int(a.B)-int(b.B))
	})
	palette := color.Palette{}
	for _, c := range often[:min(256, len(often))] {
		palette = append(palette, c)
	}
	small, index := image.NewPaletted(bounds, palette), map[color.RGBA]uint8{}
	for c := range count {
		index[c] = uint8(palette.Index(c))
	}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			small.SetColorIndex(x, y, index[at(x, y)])
		}
	}
	return small
}
