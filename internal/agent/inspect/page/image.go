// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"encoding/binary"
	"image"
	_ "image/gif"  // reads the size of pictures
	_ "image/jpeg" // reads the size of pictures
	_ "image/png"  // reads the size of pictures
	"mime"
	"net/http"
	"strconv"

	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
)

// maxPixels is the largest picture that a browser is given: a few bytes can describe one that takes
// gigabytes of memory.
const maxPixels = 16 << 20

// picture is an image that a page shows.
type picture struct {
	Path          string // "" = it is not shown, only described
	Format        string
	Width, Height int
}

// pictureOf returns what data is as an image, by its own bytes; nil if it is none. SVG is none: it
// is shown as the text that it is.
func pictureOf(data []byte, path string) *picture {
	p := &picture{Path: path}
	if size, format, err := image.DecodeConfig(bytes.NewReader(data)); err == nil {
		p.Format, p.Width, p.Height = format, size.Width, size.Height
	} else if w, h, ok := webpSize(data); ok {
		p.Format, p.Width, p.Height = "webp", w, h
	} else {
		return nil
	}
	if p.Width <= 0 || p.Height <= 0 {
		return nil
	}
	if p.Width > maxPixels/p.Height {
		p.Path = ""
	}
	return p
}

// webpSize returns the size that the header of a WebP picture gives.
func webpSize(data []byte) (width, height int, ok bool) {
	if len(data) < 30 || string(data[:4]) != "RIFF" || string(data[8:12]) != "WEBP" {
		return 0, 0, false
	}
	switch string(data[12:16]) {
	case "VP8 ":
		if !bytes.Equal(data[23:26], []byte{0x9d, 0x01, 0x2a}) {
			return 0, 0, false
		}
		return int(binary.LittleEndian.Uint16(data[26:]) & 0x3fff), int(binary.LittleEndian.Uint16(data[28:]) & 0x3fff),
			true
	case "VP8L":
		if data[20] != 0x2f {
			return 0, 0, false
		}
		bits := binary.LittleEndian.Uint32(data[21:])
		return int(bits&0x3fff) + 1, int(bits>>14&0x3fff) + 1, true
	case "VP8X":
		of := func(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }
		return of(data[24:]) + 1, of(data[27:]) + 1, true
	}
	return 0, 0, false
}

// image answers with the picture in a body, or in the part of it that the query names.
func (d *details) image(c *call, e *inspect.Exchange) error {
	m, err := c.side(e)
	if err != nil {
		return err
	}
	data := decodeBody(m).data
	if number := c.r.URL.Query().Get("part"); number != "" {
		data = bodyOfPart(data, boundaryOf(m), partNumber(number))
	}
	p := pictureOf(data, "-")
	if p == nil || p.Path == "" || m.Truncated {
		return &problem{http.StatusNotFound, "Not found", "The body is not a picture that the inspector shows."}
	}
	serveStrange(c.w, "image/"+p.Format, data)
	return nil
}

func boundaryOf(m *inspect.Message) string {
	_, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return params["boundary"]
}

func partNumber(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}

// serveStrange answers with bytes that were recorded, in which nothing may run.
func serveStrange(w http.ResponseWriter, contentType string, data []byte) {
	h := w.Header()
	h.Set("Content-Security-Policy", recordedPolicy)
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(data)))
	_, _ = w.Write(data) // a browser that is gone needs no answer
}

// download answers with the body of a message as it was received. It is a form's, since a body may
// have secrets in it.
func (d *details) download(c *call, e *inspect.Exchange) error {
	m, err := c.side(e)
	if err != nil {
		return err
	}
	c.w.Header().Set("Content-Disposition", `attachment; filename="`+c.r.PathValue("side")+`-body.bin"`)
	serveStrange(c.w, "application/octet-stream", m.Body)
	return nil
}
