// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Runner runs kubectl with these arguments to its end, or to that of ctx.
type Runner func(ctx context.Context, args []string) (stdout, stderr []byte, err error)

// maxOutput bounds what is kept of kubectl's output.
const maxOutput = 32 << 20

// ExecRunner returns the Runner of a kubectl program: a path, or a name in PATH.
func ExecRunner(kubectl string) Runner {
	return func(ctx context.Context, args []string) ([]byte, []byte, error) {
		cmd := exec.CommandContext(ctx, kubectl, args...)
		cmd.WaitDelay = time.Second // an auth plugin may outlive kubectl and hold its output
		stdout, stderr := limited{limit: maxOutput}, limited{limit: 64 << 10}
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		return stdout.Bytes(), stderr.Bytes(), err
	}
}

// limited keeps what fits and drops the rest.
type limited struct {
	bytes.Buffer
	limit int
}

func (l *limited) Write(p []byte) (int, error) {
	if room := l.limit - l.Len(); room > 0 {
		l.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// refusal is why kubectl did not return what was asked for.
type refusal struct {
	kind    refusalKind
	message string // kubectl's own, one line
}

type refusalKind int

const (
	other       refusalKind = iota
	noKubectl               // there is no such program
	unreachable             // no API server answered, or kubectl did not end in time
	forbidden
	unauthorized
	noKind // the API server has no such kind of object
	missing
)

func (r *refusal) Error() string { return r.message }

// kubectl asks one cluster.
type kubectl struct {
	run     Runner
	global  []string // flags of every call
	timeout time.Duration
}

// call runs kubectl within the time-out and returns its standard output.
func (k *kubectl) call(ctx context.Context, args ...string) ([]byte, *refusal) {
	bounded, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	stdout, stderr, err := k.run(bounded, k.withGlobal(args))
	if err == nil {
		return stdout, nil
	}
	switch {
	case bounded.Err() != nil:
		return nil, &refusal{unreachable, fmt.Sprintf("kubectl gave no answer within %v", k.timeout)}
	case errors.Is(err, exec.ErrNotFound):
		return nil, &refusal{noKubectl, "kubectl is not in PATH: install it, or put it there"}
	}
	words := lastLine(stderr)
	if words == "" {
		words = err.Error()
	}
	return nil, &refusal{kindOf(words), words}
}

// withGlobal returns the arguments with the flags of every call, before a command for a pod.
func (k *kubectl) withGlobal(args []string) []string {
	end := slices.Index(args, "--")
	if end < 0 {
		end = len(args)
	}
	return slices.Concat(args[:end], k.global, args[end:])
}

// kindOf classifies a refusal by kubectl's message, which is all it gives.
func kindOf(words string) refusalKind {
	for _, k := range []struct {
		text string
		kind refusalKind
	}{
		{"(Forbidden)", forbidden}, {"(Unauthorized)", unauthorized}, {"must be logged in to the server", unauthorized},
		{"doesn't have a resource type", noKind}, {"could not find the requested resource", noKind},
		{"no matches for kind", noKind},
		{"(NotFound)", missing},
		{"Unable to connect to the server", unreachable}, {"was refused - did you specify", unreachable},
		{"i/o timeout", unreachable},
		{"no such host", unreachable}, {"(Timeout)", unreachable}, {"TLS handshake timeout", unreachable},
		{"context deadline exceeded", unreachable},
		{"Client.Timeout exceeded", unreachable}, {"no configuration has been provided", unreachable},
		{"does not exist", unreachable},
		{"error: stat ", unreachable}, {"getting credentials", unauthorized},
	} {
		if strings.Contains(words, k.text) {
			return k.kind
		}
	}
	return other
}

func lastLine(b []byte) string {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// get asks for JSON. found is false for an object that does not exist.
func (k *kubectl) get(ctx context.Context, into any, args ...string) (found bool, err *refusal) {
	out, err := k.call(ctx, append(append([]string{"get"}, args...), "--ignore-not-found", "-o", "json",
		k.requestTimeout())...)
	if err != nil {
		if err.kind == missing {
			return false, nil
		}
		return false, err
	}
	if len(bytes.TrimSpace(out)) == 0 {
		return false, nil
	}
	return true, decode(out, into, "kubectl get "+strings.Join(args, " "))
}

// raw asks for the JSON at a path of the API server.
func (k *kubectl) raw(ctx context.Context, into any, path string) *refusal {
	out, err := k.call(ctx, "get", "--raw", path, k.requestTimeout())
	if err != nil {
		return err
	}
	return decode(out, into, path)
}

// requestTimeout makes kubectl give up before its process is killed: its message is better.
func (k *kubectl) requestTimeout() string {
	return "--request-timeout=" + (k.timeout * 4 / 5).String()
}

func decode(out []byte, into any, what string) *refusal {
	if err := json.Unmarshal(out, into); err != nil {
		return &refusal{other, fmt.Sprintf("%s answered something that cannot be read: %v", what, err)}
	}
	return nil
}
