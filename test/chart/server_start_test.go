// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/maxmind/mmdbwriter"
	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/internal/service/pki"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// closedAddr is an address on which no server listens.
const closedAddr = "127.0.0.1:1"

// serverStarts starts the program with what the chart rendered, each command line once. It may be
// used from several goroutines.
type serverStarts struct {
	t    *testing.T
	once sync.Once
	dir  string // what the pods find below /etc/fairlead
	seen sync.Map
}

// check starts the server of the Deployment, waits until it is up, and stops it.
func (s *serverStarts) check(t *testing.T, all rendered) {
	t.Helper()
	container := server(t, all).Spec.Template.Spec.Containers[0]
	key, _ := json.Marshal([]any{container.Args, container.Env})
	if _, seen := s.seen.LoadOrStore(string(key), true); seen {
		return
	}
	s.once.Do(func() { s.dir = serverFiles(s.t) })
	err := startServer(t, container, s.dir)
	if slices.Contains(container.Args, "--database-url-file=/etc/fairlead/database/url") {
		if err == nil || !strings.Contains(err.Error(), closedAddr) || strings.Contains(err.Error(), "password") {
			t.Errorf("%v: %v; want that it tries %s", container.Args, err, closedAddr)
		}
		return
	}
	if err != nil {
		t.Errorf("%v: %v", container.Args, err)
	}
}

// startServer runs the container's command line with the pod's paths below folders, on ports of its
// own, until it is up, and ends it with SIGTERM.
func startServer(t *testing.T, c corev1.Container, mounts string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	data := t.TempDir()
	place := strings.NewReplacer("/etc/fairlead/", mounts+"/", "/var/lib/fairlead", data)
	args := arguments(c)
	for i, arg := range args {
		args[i] = place.Replace(arg)
		for _, port := range []string{"--addr=", "--health-addr=", "--metrics-addr=", "--public-http-addr=",
			"--public-https-addr=", "--relay-address="} {
			if strings.HasPrefix(arg, port) {
				args[i] = port + "127.0.0.1:0"
			}
		}
	}
	cmd := exec.CommandContext(ctx, program("fairlead-server"), args...)
	cmd.Env = []string{"HOME=" + data}
	for name, value := range environment(c) {
		cmd.Env = append(cmd.Env, name+"="+place.Replace(value))
	}
	log, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	return untilUp(cmd, log)
}

// untilUp reads the log to its end and stops the process when it is up. A line that is no JSON is
// the program's error about its flags.
func untilUp(cmd *exec.Cmd, log io.Reader) error {
	up := false
	var said []string
	for lines := bufio.NewScanner(log); lines.Scan(); {
		said = append(said, lines.Text())
		if strings.Contains(lines.Text(), "is up") {
			up = true
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	if err := cmd.Wait(); err != nil || !up {
		return fmt.Errorf("it ended with exit code %d and said %s", cmd.ProcessState.ExitCode(),
			strings.Join(said, "\n"))
	}
	return nil
}

func TestServerChart_StartsAsRendered(t *testing.T) {
	t.Parallel()
	starts := &serverStarts{t: t}
	for _, input := range []string{"minimal", "own-claim"} {
		text, err := templateServer(t, nil, "--values", serverData+"/"+input+".in.yaml")
		must.Succeed(t, err)
		starts.check(t, parse(t, text))
	}
	container := server(t, renderServer(t, values{})).Spec.Template.Spec.Containers[0]
	container.Args = append(slices.Clone(container.Args), "--no-such-flag")
	if err := startServer(t, container, t.TempDir()); err == nil {
		t.Error("an unknown flag passes, so this test proves nothing")
	}
}

// The pod of `helm test` runs a command line that the program takes; nothing answers here.
func TestServerChart_TestCommandExists(t *testing.T) {
	t.Parallel()
	mounts := serverFiles(t)
	for name, v := range map[string]values{"own authority": {},
		"Secret": values{}.set("tls.existingSecret", "certificate")} {
		pod := get[corev1.Pod](t, renderServer(t, v), "Pod", serverRelease+"-test")
		args := append(arguments(pod.Spec.Containers[0]), "--connect="+closedAddr, "--timeout=1ms")
		for i := range args {
			args[i] = strings.Replace(args[i], "/etc/fairlead/", mounts+"/", 1)
		}
		out, err := exec.CommandContext(t.Context(), program("fairlead-server"), args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), closedAddr+": connect") {
			t.Errorf("%s: %v: %s (%v)", name, args, out, err)
		}
	}
}

// serverFiles writes what the pods find below /etc/fairlead.
func serverFiles(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	made := t.TempDir()
	if _, err := pki.Open(t.Context(), pki.Options{Dir: made, Names: []string{"fairlead.example.com"},
		Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	pair, err := os.ReadFile(filepath.Join(made, "server.pem")) // chain and key
	must.Succeed(t, err)
	empty, err := mmdbwriter.New(mmdbwriter.Options{DatabaseType: "test", RecordSize: 24})
	must.Succeed(t, err)
	var database bytes.Buffer
	if _, err := empty.WriteTo(&database); err != nil {
		t.Fatal(err)
	}
	secret := strings.Repeat("A", 43)
	for name, content := range map[string]string{
		"tls/tls.crt": string(pair), "tls/tls.key": string(pair), "public-tls-0/tls.crt": string(pair),
		"public-tls-0/tls.key": string(pair), "public-tls-1/tls.crt": string(pair),
		"public-tls-1/tls.key": string(pair),
		"bootstrap/api-key":    "flk_" + secret + "\n", "bootstrap/authtoken": "flt_" + secret + "\n",
		"database/url":    "postgres://fairlead:password@" + closedAddr + "/fairlead\n",
		"geoip/city.mmdb": database.String(),
		"geoip/asn.mmdb":  database.String(), "secret-key/key": strings.Repeat("0a", 32) + "\n",
	} {
		file := filepath.Join(dir, name)
		must.Succeed(t, os.MkdirAll(filepath.Dir(file), 0o700))
		must.Succeed(t, os.WriteFile(file, []byte(content), 0o600))
	}
	return dir
}
