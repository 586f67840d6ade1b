// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"mime/multipart"
	"slices"
	"strconv"
	"strings"
)

const (
	maxParts      = 50
	maxPartFields = 20 // fields of a part's header
	maxNesting    = 1  // levels of multipart bodies in parts
)

// part is one part of a multipart body.
type part struct {
	Name    string // a form field's name, or the part's number
	File    string
	Header  []field
	Size    string
	Content content
}

// partsOfBody returns the parts of a multipart body, none if it is not one.
func partsOfBody(
	data []byte, boundary string, cut bool, mask *masker, imagePath string, depth int,
) (parts []part, notes []string) {
	if boundary == "" || depth > maxNesting {
		return nil, nil
	}
	r := multipart.NewReader(bytes.NewReader(data), boundary)
	for {
		p, err := r.NextRawPart()
		if errors.Is(err, io.EOF) {
			return parts, notes
		}
		if err != nil {
			return parts, append(notes, "The multipart body ends before its last part is complete.")
		}
		if len(parts) == maxParts {
			return parts, append(notes, "Shown are the first "+strconv.Itoa(maxParts)+" parts.")
		}
		body, err := io.ReadAll(p)
		parts = append(parts, onePart(p, body, cut || err != nil, mask, partImagePath(imagePath, len(parts), depth),
			depth))
		parts[len(parts)-1].Content.Label = "Part " + strconv.Itoa(len(parts))
	}
}

// partImagePath returns the path of the picture in a part; pictures of nested parts have none.
func partImagePath(imagePath string, n, depth int) string {
	if depth > 0 || imagePath == "" {
		return ""
	}
	return imagePath + "?part=" + strconv.Itoa(n)
}

func onePart(p *multipart.Part, body []byte, cut bool, mask *masker, imagePath string, depth int) part {
	one := part{Name: p.FormName(), File: p.FileName(), Size: formatSize(int64(len(body)))}
	one.Name, one.File = mask.text(shorten(one.Name, 100)), mask.text(shorten(one.File, 200))
	for _, name := range slices.Sorted(maps.Keys(p.Header)) {
		if len(one.Header) == maxPartFields {
			break
		}
		one.Header = append(one.Header, field{shorten(name, 100),
			mask.text(shorten(strings.Join(p.Header[name], ", "), 500))})
	}
	contentType := p.Header.Get("Content-Type")
	one.Content = render(body, contentType, cut, mask, imagePath, depth+1)
	one.Content.Type = ""
	return one
}

// bodyOfPart returns the body of the part with the number; nil if there is none.
func bodyOfPart(data []byte, boundary string, n int) []byte {
	if boundary == "" || n < 0 || n >= maxParts {
		return nil
	}
	r := multipart.NewReader(bytes.NewReader(data), boundary)
	for i := 0; ; i++ {
		p, err := r.NextRawPart()
		if err != nil {
			return nil
		}
		if i == n {
			body, err := io.ReadAll(p)
			if err != nil {
				return nil
			}
			return body
		}
	}
}
