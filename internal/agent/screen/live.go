// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"bytes"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/fairlead-dev/fairlead/internal/agent"
)

const (
	drawEvery   = 100 * time.Millisecond // at most
	redrawEvery = time.Second            // at least: ages change, and typed characters are erased
)

// Control sequences. The alternate screen preserves the terminal's content; without wrapping, a
// character that is wider than expected damages its own line only.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	frameBegins = "\x1b[H"
	// what the frame before left there; behind a line of full width it would erase its last
	// character
	lineBegins = "\x1b[K"
	lineEnds   = "\r\n"
	restBegins = "\x1b[J" // the last line, and all below
	frameEnds  = "\x1b[H"
)

// terminal is what Live draws on.
type terminal interface {
	io.Writer
	size() (columns, rows int)
	// foreground reports whether the process may draw: it is in the terminal's foreground group.
	foreground() bool
	// changes gets a value when the size may have changed. stops gets one when the process is to
	// stop for a while, or to quit; suspend does that, once the terminal was left, and returns when
	// the process goes on.
	changes() <-chan os.Signal
	stops() <-chan os.Signal
	suspend(os.Signal)
	close()
}

// Live is a status screen on a terminal, redrawn in place. After Leave it prints lines, as a Screen
// does. Safe for concurrent use.
type Live struct {
	term terminal
	opt  Options
	wake chan struct{}
	quit chan struct{}
	done chan struct{}
	once sync.Once

	mu      sync.Mutex
	model   model
	leaving bool          // Leave has begun
	queued  []agent.Event // what came while it went on
	lines   *Screen       // after Leave
}

// sizeOf returns the size of a terminal, or what most have.
func sizeOf(f *os.File) (columns, rows int) {
	columns, rows, err := term.GetSize(int(f.Fd()))
	if err != nil || columns <= 0 || rows <= 0 {
		return 80, 24
	}
	return columns, rows
}

// NewLive starts a status screen on out. ok is false where out is no terminal that it could draw
// on; then there is no Live.
func NewLive(out io.Writer, opt Options) (l *Live, ok bool) {
	f, isFile := out.(*os.File)
	if !isFile {
		return nil, false
	}
	t, ok := openTerminal(f)
	if !ok {
		return nil, false
	}
	return newLive(t, opt), true
}

func newLive(term terminal, opt Options) *Live {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	l := &Live{term: term, opt: opt, wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	go l.run()
	return l
}

// Observe records an event and never waits for the terminal.
func (l *Live) Observe(e agent.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.model.apply(e, l.opt.Now())
	switch {
	case l.lines != nil:
		l.lines.Observe(e)
		return
	case l.leaving:
		l.queued = append(l.queued, e)
		return
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Leave restores the terminal; later events are printed as lines. It waits for at most flushAtEnd.
func (l *Live) Leave() {
	l.once.Do(func() {
		l.mu.Lock()
		l.leaving = true
		l.mu.Unlock()
		close(l.quit)
		select {
		case <-l.done:
		case <-time.After(flushAtEnd):
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = newScreen(l.term, l.opt, &text{color: l.opt.Color, multiple: len(l.model.rows) > 1})
		for _, e := range l.queued {
			l.lines.Observe(e)
		}
		l.queued = nil
	})
}

// Close calls Leave, and prints queued lines unless the terminal is stuck.
func (l *Live) Close() {
	l.Leave()
	l.lines.Close()
}

// run draws until Leave.
func (l *Live) run() {
	defer close(l.done)
	defer l.term.close()
	c := canvas{live: l}
	defer c.leave()
	tick := time.NewTicker(redrawEvery)
	defer tick.Stop()
	soon := time.NewTimer(0)
	defer soon.Stop()
	due := true
	for {
		select {
		case <-l.quit:
			return
		case s := <-l.term.stops():
			c.leave()
			l.term.suspend(s)
			c.draw()
		case <-l.term.changes():
			c.draw()
		case <-tick.C:
			c.draw()
		case <-l.wake:
			if !due {
				due = true
				soon.Reset(drawEvery)
			}
		case <-soon.C:
			due = false
			c.draw()
		}
	}
}

// canvas tracks whether the alternate screen is entered.
type canvas struct {
	live    *Live
	entered bool
	buf     bytes.Buffer
}

func (c *canvas) draw() {
	if !c.live.term.foreground() {
		c.entered = false // the shell has its own screen by now
		return
	}
	columns, rows := c.live.term.size()
	c.live.mu.Lock()
	lines := c.live.model.frame(columns, rows, c.live.opt.Color, c.live.opt.Now())
	c.live.mu.Unlock()
	c.buf.Reset()
	if !c.entered {
		c.buf.WriteString(enterScreen)
		c.entered = true
	}
	c.buf.WriteString(frameBegins)
	for i, line := range lines {
		if i < len(lines)-1 {
			c.buf.WriteString(lineBegins + line + lineEnds)
		} else {
			c.buf.WriteString(restBegins + line)
		}
	}
	c.buf.WriteString(frameEnds)
	_, _ = c.live.term.Write(c.buf.Bytes()) // a terminal that is gone ends nothing
}

// leave is called however run ends, a panic included.
func (c *canvas) leave() {
	if c.entered && c.live.term.foreground() {
		_, _ = io.WriteString(c.live.term, leaveScreen)
	}
	c.entered = false
}
