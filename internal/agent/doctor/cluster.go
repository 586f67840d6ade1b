// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/path"
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

// cluster is a cluster, as the user's kubectl reaches it.
type cluster struct {
	run                 Runner
	global              []string // global has the flags of every call.
	timeout             time.Duration
	kubeconfig, context string // kubeconfig and context are the flags of kubectl; empty: its own choice.
	which               string // which names the cluster for people.
}

// cluster returns the cluster of a context; "" = of the one that kubectl uses.
func (o *Options) cluster(context string) *cluster {
	c := &cluster{run: o.Kubectl, timeout: o.Timeout, kubeconfig: o.Kubeconfig, context: context,
		which: "kubectl's current context"}
	if c.kubeconfig != "" {
		c.global = append(c.global, "--kubeconfig="+c.kubeconfig)
	}
	if context != "" {
		c.global = append(c.global, "--context="+context)
		c.which = "context " + context
	}
	return c
}

// contextName returns the context that kubectl uses, "" when kubectl does not print one.
func (c *cluster) contextName(ctx context.Context) string {
	if c.context != "" {
		return c.context
	}
	out, err := c.call(ctx, "config", "current-context")
	if err != nil {
		return ""
	}
	return lastLine(out)
}

// answered returns the hop of a cluster whose answer was r; nil = what was asked for. naming is a
// remedy that names the cluster, before look, a command that is to work.
func (c *cluster) answered(r *refusal, naming, look string) path.Hop {
	switch {
	case r == nil:
	case r.kind == noKubectl:
		return path.Brokenf("install kubectl (https://kubernetes.io/docs/tasks/tools/)", "%s", r.message)
	case r.kind == unreachable || r.kind == other:
		return path.Brokenf(naming+"\n"+look, "%s does not answer: %s", c.which, r.message)
	case r.kind == unauthorized:
		return path.Brokenf("log in to the cluster, so that this works:\n"+look, "%s does not know you: %s", c.which,
			r.message)
	}
	return path.OKf("%s answers", c.which)
}

// command returns a kubectl command line with the flags of the same cluster.
func (c *cluster) command(format string, args ...any) string {
	line := "kubectl"
	if c.kubeconfig != "" {
		line += " --kubeconfig " + quoted(c.kubeconfig)
	}
	if c.context != "" {
		line += " --context " + quoted(c.context)
	}
	return line + " " + fmt.Sprintf(format, args...)
}

// quoted quotes an argument for a shell where needed.
func quoted(arg string) string {
	if strings.Trim(arg, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%_-+=:,./") == "" {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

// call runs kubectl within the time-out and returns its standard output.
func (c *cluster) call(ctx context.Context, args ...string) ([]byte, *refusal) {
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	stdout, stderr, err := c.run(bounded, c.withGlobal(args))
	if err == nil {
		return stdout, nil
	}
	switch {
	case bounded.Err() != nil:
		return nil, &refusal{unreachable, fmt.Sprintf("kubectl gave no answer within %v", c.timeout)}
	case errors.Is(err, exec.ErrNotFound):
		return nil, &refusal{noKubectl, "kubectl is not in PATH: install it, or put it there"}
	}
	words := cmp.Or(lastLine(stderr), err.Error())
	return nil, &refusal{kindOf(words), words}
}

// withGlobal returns the arguments with the flags of every call, before a command for a pod.
func (c *cluster) withGlobal(args []string) []string {
	end := slices.Index(args, "--")
	if end < 0 {
		end = len(args)
	}
	return slices.Concat(args[:end], c.global, args[end:])
}

// kindOf classifies a refusal by kubectl's message, which is all it gives.
func kindOf(words string) refusalKind {
	for _, k := range []struct {
		text string
		kind refusalKind
	}{
		{"(Forbidden)", forbidden}, {"(Unauthorized)", unauthorized}, {"must be logged in to the server", unauthorized},
		{"doesn't have a resource type", noKind}, {"could not find the requested resource", noKind},
		{"no matches for kind", noKind}, {"(NotFound)", missing}, {"Unable to connect to the server", unreachable},
		{"was refused - did you specify", unreachable}, {"i/o timeout", unreachable}, {"no such host", unreachable},
		{"(Timeout)", unreachable}, {"TLS handshake timeout", unreachable}, {"context deadline exceeded", unreachable},
		{"Client.Timeout exceeded", unreachable}, {"no configuration has been provided", unreachable},
		{"does not exist", unreachable}, {"error: stat ", unreachable}, {"getting credentials", unauthorized},
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
func (c *cluster) get(ctx context.Context, into any, args ...string) (found bool, err *refusal) {
	out, err := c.call(ctx, append(append([]string{"get"}, args...), "--ignore-not-found", "-o", "json",
		c.requestTimeout())...)
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

// lookUp returns the object of a kind at "<namespace>/<name>" or "<name>", or the hop that says why
// it is not there: missing, if it does not exist.
func lookUp[T any](ctx context.Context, c *cluster, kind, place string, missing path.Hop) (*T, *path.Hop) {
	args := []string{strings.ToLower(kind) + "s", place}
	if namespace, name, found := strings.Cut(place, "/"); found {
		args = []string{args[0], name, "--namespace", namespace}
	}
	var object T
	exists, err := c.get(ctx, &object, args...)
	if err != nil {
		missing = refusedHop(kind+" "+place, err)
	}
	if exists && err == nil {
		return &object, nil
	}
	return nil, &missing
}

// listSelected lists the objects of a kind that a selector selects, in a namespace; "" = in all.
func listSelected[T any](ctx context.Context, c *cluster, kind, namespace, selector string) ([]T, *refusal) {
	scope := []string{"--namespace", namespace}
	if namespace == "" {
		scope = []string{"--all-namespaces"}
	}
	var found list[T]
	_, err := c.get(ctx, &found, slices.Concat([]string{kind}, scope, []string{"-l", selector})...)
	return found.Items, err
}

// sliceKind and serviceSlices are what kubectl is asked for, and the label that names a Service.
const (
	sliceKind     = "endpointslices.discovery.k8s.io"
	serviceSlices = "kubernetes.io/service-name="
)

// checkNamespace checks a namespace. An object of the kind that was found in it shows that it exists,
// to a user who may not read it. missing is the hop without it, wait the remedy while it is deleted.
func (c *cluster) checkNamespace(
	ctx context.Context, name, kind string, found bool, missing path.Hop, wait string,
) path.Hop {
	var ns namespace
	exists, err := c.get(ctx, &ns, "namespaces", name)
	switch {
	case err != nil && found:
		return path.OKf("%s exists: it has the %s", name, kind)
	case err != nil:
		return refusedHop("namespace "+name, err)
	case !exists:
		missing.Fix += ":\n" + c.command("create namespace %s", name)
		return missing
	case ns.Metadata.DeletionTimestamp != nil || ns.Status.Phase == "Terminating":
		return path.Brokenf(wait, path.NamespaceTerminating, name)
	}
	return path.OKf("%s exists", name)
}

// raw asks for the JSON at a path of the API server.
func (c *cluster) raw(ctx context.Context, into any, path string) *refusal {
	out, err := c.call(ctx, "get", "--raw", path, c.requestTimeout())
	if err != nil {
		return err
	}
	return decode(out, into, path)
}

// requestTimeout makes kubectl give up before its process is killed: its message is better.
func (c *cluster) requestTimeout() string {
	return "--request-timeout=" + (c.timeout * 4 / 5).String()
}

func decode(out []byte, into any, what string) *refusal {
	if err := json.Unmarshal(out, into); err != nil {
		return &refusal{other, fmt.Sprintf("%s answered something that cannot be read: %v", what, err)}
	}
	return nil
}
