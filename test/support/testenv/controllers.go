// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// controllerManager is a running kube-controller-manager.
type controllerManager struct {
	dir   string // kubeconfig and log
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended
}

// startControllers runs the named controllers only. They work as the administrator.
func startControllers(assets string, kubeconfig []byte, names []string) (*controllerManager, error) {
	dir, err := os.MkdirTemp("", "testenv-")
	if err != nil {
		return nil, err
	}
	m := &controllerManager{dir: dir, ended: make(chan struct{})}
	if err := m.start(filepath.Join(assets, "kube-controller-manager"), kubeconfig, names); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return m, nil
}

func (m *controllerManager) start(program string, kubeconfig []byte, names []string) error {
	config := filepath.Join(m.dir, "kubeconfig")
	if err := os.WriteFile(config, kubeconfig, 0o600); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(m.dir, "log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the program has its own
	m.cmd = exec.CommandContext(context.Background(), program, "--kubeconfig="+config, "--leader-elect=false",
		"--secure-port=0",
		"--controllers="+strings.Join(names, ","))
	m.cmd.Stdout, m.cmd.Stderr = log, log
	if err := m.cmd.Start(); err != nil {
		return err
	}
	go func() {
		_ = m.cmd.Wait() // how it ended is in its ProcessState
		close(m.ended)
	}()
	return nil
}

// stop ends the program. That it had ended before is an error, as the tests did not have what they
// asked for.
func (m *controllerManager) stop() error {
	defer func() { _ = os.RemoveAll(m.dir) }()
	select {
	case <-m.ended:
		log, _ := os.ReadFile(filepath.Join(m.dir, "log"))
		return fmt.Errorf("the controller manager ended by itself (%s); its log ends with: %s", m.cmd.ProcessState,
			log[max(0, len(log)-2000):])
	default:
	}
	_ = m.cmd.Process.Signal(syscall.SIGTERM) // it may end at this moment
	select {
	case <-m.ended:
	case <-time.After(10 * time.Second):
		_ = m.cmd.Process.Kill()
		<-m.ended
	}
	return nil
}
