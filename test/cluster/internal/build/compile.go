// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// compile runs one go build of all packages (the best use of the cores) into bin.
func compile(ctx context.Context, p *progress, src, bin string, packages []string) error {
	flags, err := linkerFlags(os.DirFS(src))
	if err != nil {
		return err
	}
	p.phase("looking what to compile")
	// Programs are linked whether their package is in Go's build cache or not, so they are not
	// counted here.
	list := append([]string{"list", "-deps", "-trimpath", "-f",
		`{{if and .Stale (ne .Name "main")}}{{.ImportPath}}{{end}}`}, packages...)
	var stale bytes.Buffer
	if err := goCommand(ctx, p, src, &stale, list...); err != nil {
		return err
	}
	p.compiling(strings.Fields(stale.String()), bin, len(packages))
	args := append([]string{"build", "-ldflags", flags, "-o", bin + "/"}, buildFlags...)
	return goCommand(ctx, p, src, nil, append(args, packages...)...)
}

// goCommand runs the go command in src, counts its lines on stderr as progress and keeps the
// rest for an error.
func goCommand(ctx context.Context, p *progress, src string, stdout io.Writer, args ...string) error {
	path, err := lookGo()
	if err != nil {
		return err
	}
	// The compiler dies with the thread that started it, so this one must live on: a killed build
	// leaves no compiler.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir, cmd.Env, cmd.Stdout = src, goEnv(), stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 10 * time.Second
	pipe, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", path, err)
	}
	var said []string
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "go: downloading "):
			p.downloaded()
		case isImportPath(line):
			p.compiled(line)
		default:
			said = append(said, line)
		}
	}
	err = cmd.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("go %s: %w\n%s", args[0], err, strings.Join(said, "\n"))
	}
	return nil
}

// isImportPath reports whether a line of go build -v is the name of a package, not a message of the
// compiler.
func isImportPath(line string) bool {
	return line != "" && !strings.ContainsAny(line, " \t:#")
}
