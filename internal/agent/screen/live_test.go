// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/agent"
)

// emulated is a terminal that keeps what a person would see. It knows what Live sends. As on a real
// one whose lines do not wrap, the cursor stays on the last column behind a full line.
type emulated struct {
	columns, rows int

	mu     sync.Mutex
	shown  [][]rune
	x, y   int
	broken string
}

func (e *emulated) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	text := []rune(string(p))
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\r':
			e.x = 0
		case c == '\n':
			e.y = min(e.y+1, e.rows-1)
		case c == '\x1b' && i+1 < len(text) && text[i+1] == '[':
			end := i + 2
			for strings.ContainsRune("?;0123456789", text[end]) {
				end++
			}
			e.control(string(text[i+2:end]), text[end])
			i = end
		default:
			e.shown[e.y][e.x] = c
			e.x = min(e.x+1, e.columns-1)
		}
	}
	return len(p), nil
}

func (e *emulated) control(argument string, kind rune) {
	switch {
	case kind == 'H':
		e.x, e.y = 0, 0
	case kind == 'K' && argument == "":
		e.erase(e.y, e.x)
	case kind == 'J':
		e.erase(e.y, e.x)
		for y := e.y + 1; y < e.rows; y++ {
			e.erase(y, 0)
		}
	case kind == 'h', kind == 'l', kind == 'm':
	default:
		e.broken = argument + string(kind)
	}
}

func (e *emulated) erase(y, from int) {
	for x := from; x < e.columns; x++ {
		e.shown[y][x] = ' '
	}
}

func (e *emulated) lines() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make([]string, len(e.shown))
	for y, line := range e.shown {
		all[y] = strings.TrimRight(string(line), " ")
	}
	return all
}

func (e *emulated) size() (columns, rows int) { return e.columns, e.rows }
func (e *emulated) foreground() bool          { return true }
func (e *emulated) changes() <-chan os.Signal { return nil }
func (e *emulated) stops() <-chan os.Signal   { return nil }
func (e *emulated) suspend(os.Signal)         {}
func (e *emulated) close()                    {}
func newEmulated(columns, rows int) *emulated {
	e := &emulated{columns: columns, rows: rows, shown: make([][]rune, rows)}
	for y := range e.shown {
		e.shown[y] = []rune(strings.Repeat("#", columns)) // what was there before
	}
	return e
}

// TestLive_ShowsEachFrameWhole: what is on the terminal is the frame, at every width, also when a
// longer one was there before.
func TestLive_ShowsEachFrameWhole(t *testing.T) {
	t.Parallel()
	for columns := 40; columns <= 130; columns += 3 {
		for _, rows := range []int{5, 24} {
			t.Run(strconv.Itoa(columns)+"x"+strconv.Itoa(rows), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					term := newEmulated(columns, rows)
					l := newLive(term, Options{Now: noon})
					for _, e := range busy() {
						l.Observe(e)
					}
					time.Sleep(2 * redrawEvery) // in the bubble: two frames, one over the other
					l.mu.Lock()
					want := l.model.frame(columns, rows, false, noon())
					l.mu.Unlock()
					for y, got := range term.lines() {
						line := ""
						if y < len(want) {
							line = strings.TrimRight(want[y], " ")
						}
						if !strings.ContainsFunc(line, isWide) && got != line {
							t.Errorf("line %d is %q, want %q", y, got, line)
						}
					}
					if first := term.lines()[0]; !strings.HasSuffix(first, "Ctrl-C to stop") || term.broken != "" {
						t.Errorf("the title is %q; unknown control %q", first, term.broken)
					}
					l.Close()
				})
			})
		}
	}
}

// isWide reports whether the emulated terminal, whose characters have one column, cannot show r.
func isWide(r rune) bool { return r > 0x2fff }

func TestText_DecodesLettersOfPaths(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/":                    "/",
		"/caf%C3%A9":           "/café",
		"/%E6%97%A5/%e6%9c%ac": "/日/本",
		"/%F0%9F%9A%A2":        "/🚢",
		"/a%2Fb%25%20c":        "/a%2Fb%25%20c",
		"/%C3":                 "/%C3",
		"/%C3%28":              "/%C3%28",
		"/%E2%80%AEevil":       "/%E2%80%AEevil", // turns the direction of writing
		"/%":                   "/%",
		"/%zz":                 "/%zz",
	} {
		if got := readablePath(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

func TestFrame_ShowsTheName(t *testing.T) {
	t.Parallel()
	named := agent.EndpointInfo{URL: "http://web.demo", Name: "blue", Upstream: "http://localhost:8080"}
	if got := strings.Join(modelOf(connected(named)...).frame(120, 24, false, noon()), "\n"); !strings.Contains(got,
		"http://web.demo (blue) -> ") {
		t.Errorf("the name is missing:\n%s", got)
	}
}
