// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// progress shows the progress of a long build: one line redrawn each second on a terminal,
// elsewhere a line every 15 seconds. Its methods may be called from several goroutines.
type progress struct {
	out      io.Writer
	terminal bool
	what     string
	start    time.Time
	quit     chan struct{}
	gone     chan struct{}

	mu        sync.Mutex
	step      string
	downloads int
	total     int             // packages to compile
	waiting   map[string]bool // those of them that are not compiled yet
	bin       string          // where programs appear when they are linked; empty before the compiler's phase
	programs  int
	stopped   bool

	outMu sync.Mutex // one line at a time
}

const plainInterval = 15 * time.Second

func newProgress(out io.Writer, what string) *progress {
	p := &progress{out: out, what: what, start: time.Now(), quit: make(chan struct{}), gone: make(chan struct{})}
	if f, ok := out.(*os.File); ok {
		_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
		p.terminal = err == nil
	}
	go p.run()
	return p
}

func (p *progress) run() {
	defer close(p.gone)
	interval := plainInterval
	if p.terminal {
		interval = time.Second
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-p.quit:
			return
		case <-tick.C:
			p.show(p.line())
		}
	}
}

func (p *progress) show(line string) {
	p.outMu.Lock()
	defer p.outMu.Unlock()
	if p.terminal {
		_, _ = fmt.Fprintf(p.out, "\r\033[K%s", line)
		return
	}
	_, _ = fmt.Fprintln(p.out, line)
}

func (p *progress) line() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	elapsed := time.Since(p.start).Round(time.Second)
	step := p.step
	switch {
	case len(p.waiting) > 0:
		finished := p.total - len(p.waiting)
		step = fmt.Sprintf("compiling, %d of %d packages (%d %%)", finished, p.total, 100*finished/p.total)
	case p.bin != "":
		linked, _ := os.ReadDir(p.bin) // a wrong number would do no harm
		step = fmt.Sprintf("linking, %d of %d programs", len(linked), p.programs)
	case p.downloads > 0:
		step = fmt.Sprintf("downloading Go modules, %d so far", p.downloads)
	}
	return fmt.Sprintf("building %s: %s, %v", p.what, step, elapsed)
}

func (p *progress) phase(step string) {
	p.mu.Lock()
	p.step = step
	p.mu.Unlock()
	p.show(p.line())
}

func (p *progress) downloaded() {
	p.mu.Lock()
	p.downloads++
	p.mu.Unlock()
}

// compiling begins the compiler's phase: the packages that are not in Go's build cache, then
// programs into bin.
func (p *progress) compiling(packages []string, bin string, programs int) {
	p.mu.Lock()
	p.waiting = map[string]bool{}
	for _, name := range packages {
		p.waiting[name] = true
	}
	p.total, p.bin, p.programs = len(packages), bin, programs
	p.mu.Unlock()
	p.show(p.line())
}

func (p *progress) compiled(name string) {
	p.mu.Lock()
	delete(p.waiting, name)
	p.mu.Unlock()
}

// done ends the display of a build that succeeded.
func (p *progress) done() {
	p.stop()
	p.show(fmt.Sprintf("built %s in %v", p.what, time.Since(p.start).Round(time.Second)))
	if p.terminal {
		_, _ = fmt.Fprintln(p.out)
	}
}

// stop ends the display; it may be called again.
func (p *progress) stop() {
	p.mu.Lock()
	again := p.stopped
	p.stopped = true
	p.mu.Unlock()
	if again {
		return
	}
	close(p.quit)
	<-p.gone
	if p.terminal {
		_, _ = fmt.Fprint(p.out, "\r\033[K")
	}
}
