// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"

	"golang.org/x/sys/windows/svc"

	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
)

const (
	serviceLog    = "fairlead.log" // in the state directory
	maxServiceLog = 10 << 20       // bytes at a start, beyond which the file becomes fairlead.log.old
)

// underServiceManager runs the program. When the service manager of Windows has started it, the
// controls Stop and Shutdown cancel its context, and what it prints goes to a file, as a service
// has no console.
func underServiceManager(program func(context.Context) int) int {
	if is, err := svc.IsWindowsService(); err != nil || !is {
		return program(context.Background())
	}
	if err := svc.Run("", windowsService(program)); err != nil { // it ignores the name in a process of one service
		return exitOther
	}
	return 0 // the service manager has the program's exit code
}

// windowsService is the program as a svc.Handler.
type windowsService func(context.Context) int

// Execute returns when the program has ended. An exit code other than 0 is the service's own.
func (program windowsService) Execute(
	_ []string, controls <-chan svc.ChangeRequest, status chan<- svc.Status,
) (specific bool, code uint32) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	logToFile()
	ended := make(chan int, 1)
	go func() { ended <- program(ctx) }()
	status <- svc.Status{State: svc.Running, Accepts: svc.AcceptStop | svc.AcceptShutdown}
	for {
		select {
		case code := <-ended:
			return code != 0, uint32(code) //nolint:gosec // exit codes are small
		case c := <-controls:
			switch c.Cmd {
			case svc.Interrogate:
				status <- c.CurrentStatus
			case svc.Stop, svc.Shutdown:
				status <- svc.Status{State: svc.StopPending}
				cancel()
			}
		}
	}
}

// logToFile makes a file the output of the process, if it can be written.
func logToFile() {
	dir, err := agentconfig.StateDir(os.Getenv)
	if err != nil {
		return
	}
	path := filepath.Join(dir, serviceLog)
	_ = os.MkdirAll(dir, 0o700)
	if i, err := os.Stat(path); err == nil && i.Size() > maxServiceLog {
		_ = os.Rename(path, path+".old")
	}
	if f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
		os.Stdout, os.Stderr = f, f
	}
}
