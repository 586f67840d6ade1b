// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Command recording draws what hack/recording.sh has recorded as one animated SVG image. Frames
// come in at standard input: a vertical tab, the milliseconds since the start, and the text of two
// terminals with a form feed between them, with colours as terminals take them (ECMA-48 SGR). It
// hands over a file for README.md.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	columns    = 110
	charWidth  = 8.4 // pixels, of a monospaced font of fontSize
	lineHeight = 18
	fontSize   = 14
	margin     = 16
	titleBar   = 30
	gap        = 14   // between the two terminals
	holdMillis = 4000 // how long the last frame stays
)

type frame struct {
	millis    int
	terminals [2][]string
}

func main() {
	log.SetFlags(0)
	out := flag.String("out", "recording.svg", "the file to write")
	flag.Parse()
	in, err := io.ReadAll(os.Stdin)
	if err != nil {
		log.Fatal(err)
	}
	frames, err := parse(string(in))
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(*out, draw(frames), 0o644); err != nil {
		log.Fatal(err)
	}
}

func parse(in string) ([]frame, error) {
	var frames []frame
	for _, part := range strings.Split(in, "\v")[1:] {
		head, text, _ := strings.Cut(part, "\n")
		millis, err := strconv.Atoi(head)
		if err != nil {
			return nil, fmt.Errorf("the time of a frame: %w", err)
		}
		first, second, ok := strings.Cut(text, "\f\n")
		if !ok {
			return nil, fmt.Errorf("frame at %d ms: no form feed between the terminals", millis)
		}
		frames = append(frames, frame{millis, [2][]string{lines(first), lines(second)}})
	}
	if len(frames) == 0 {
		return nil, fmt.Errorf("no frames at standard input")
	}
	return frames, nil
}

func lines(text string) []string { return strings.Split(strings.TrimSuffix(text, "\n"), "\n") }

// draw returns the image. A line of a terminal that stays the same over several frames is drawn
// once, visible for as long as it stood there; without animation the last frame is what one sees.
func draw(frames []frame) []byte {
	total := frames[len(frames)-1].millis + holdMillis
	heights := [2]int{}
	for _, f := range frames {
		for i, t := range f.terminals {
			heights[i] = max(heights[i], len(t))
		}
	}
	width := int(math.Ceil(columns*charWidth)) + 2*margin
	boxes := [2]int{heights[0]*lineHeight + titleBar + margin, heights[1]*lineHeight + titleBar + margin}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="`+
		`ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="%d">`+"\n",
		width, boxes[0]+boxes[1]+gap, fontSize)
	b.WriteString("<title>An agent starts; a pod calls its endpoint</title>\n")
	top := 0
	for i, title := range []string{"your laptop", "your cluster"} {
		fmt.Fprintf(&b, `<rect y="%d" width="%d" height="%d" rx="8" fill="#11161d"/>`+
			`<text x="%d" y="%d" fill="#8b949e">%s</text>`+"\n", top, width, boxes[i], margin, top+21, title)
		for row := range heights[i] {
			drawRow(&b, frames, i, row, top+titleBar+(row+1)*lineHeight-4, total)
		}
		top += boxes[i] + gap
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// drawRow draws one row of a terminal: each text that stood there, with the time it was visible.
func drawRow(b *bytes.Buffer, frames []frame, terminal, row, y, total int) {
	at := func(f frame) string {
		if t := f.terminals[terminal]; row < len(t) {
			return t[row]
		}
		return ""
	}
	for from := 0; from < len(frames); {
		to := from + 1
		for to < len(frames) && at(frames[to]) == at(frames[from]) {
			to++
		}
		if spans := spansOf(at(frames[from])); spans != "" {
			begin, end := 0.0, 1.0
			if from > 0 {
				begin = float64(frames[from].millis) / float64(total)
			}
			if to < len(frames) {
				end = float64(frames[to].millis) / float64(total)
			}
			drawText(b, spans, y, begin, end, total)
		}
		from = to
	}
}

// drawText draws a text that is visible from begin to end, parts of the whole time.
func drawText(b *bytes.Buffer, spans string, y int, begin, end float64, total int) {
	hidden, values, times := "", "1", "0"
	if begin > 0 {
		values, times = "0;1", fmt.Sprintf("0;%.4f", begin)
	}
	if end < 1 {
		hidden, values, times = ` opacity="0"`, values+";0", fmt.Sprintf("%s;%.4f", times, end)
	}
	fmt.Fprintf(b, `<text y="%d" fill="#e6edf3" xml:space="preserve"%s>%s`, y, hidden, spans)
	if values != "1" {
		fmt.Fprintf(b, `<animate attributeName="opacity" calcMode="discrete" values="%s" keyTimes="%s" dur="%dms" `+
			`repeatCount="indefinite"/>`, values, times, total)
	}
	b.WriteString("</text>\n")
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// spansOf returns a line as SVG text, its colours kept; "" for a line without a visible character.
func spansOf(line string) string {
	var b strings.Builder
	var style style
	column, visible := 0, false
	for line != "" {
		text, rest, escape := strings.Cut(line, "\x1b[")
		if trimmed := strings.TrimRight(text, " "); trimmed != "" {
			visible = true
			fmt.Fprintf(&b, `<tspan x="%.1f"%s>%s</tspan>`, margin+float64(column)*charWidth, style.attributes(),
				escaper.Replace(trimmed))
		}
		column += utf8.RuneCountInString(text)
		if !escape {
			break
		}
		codes, after, _ := strings.Cut(rest, "m")
		style.apply(codes)
		line = after
	}
	if !visible {
		return ""
	}
	return b.String()
}

// style is what SGR codes have set.
type style struct {
	bold, dim bool
	colour    int // 30 to 37, 90 to 97; 0 = the terminal's own
}

var palette = map[int]string{
	30: "#484f58", 31: "#ff7b72", 32: "#3fb950", 33: "#d29922", 34: "#58a6ff", 35: "#bc8cff", 36: "#39c5cf",
	37: "#b1bac4",
	90: "#6e7681", 91: "#ffa198", 92: "#56d364", 93: "#e3b341", 94: "#79c0ff", 95: "#d2a8ff", 96: "#56d4dd",
	97: "#ffffff",
}

func (s *style) apply(codes string) {
	for _, code := range strings.Split(codes, ";") {
		switch n, _ := strconv.Atoi(code); { // "" is 0
		case n == 0:
			*s = style{}
		case n == 1:
			s.bold = true
		case n == 2:
			s.dim = true
		case n == 22:
			s.bold, s.dim = false, false
		case n == 39:
			s.colour = 0
		case palette[n] != "":
			s.colour = n
		}
	}
}

func (s *style) attributes() string {
	var a string
	if s.colour != 0 {
		a += ` fill="` + palette[s.colour] + `"`
	}
	if s.bold {
		a += ` font-weight="bold"`
	}
	if s.dim {
		a += ` opacity="0.6"`
	}
	return a
}
