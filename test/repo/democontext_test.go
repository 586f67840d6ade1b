// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TestDemoContext_KnowsTools checks what `make demo CONTEXT=` loads images with, what pods reach this
// machine at, and where the service listens, with programs that print what the tools do.
func TestDemoContext_KnowsTools(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	for name, script := range map[string]string{
		"uname": `echo "${SYSTEM:-Linux}"`,
		"docker": `[ "$*" = "network inspect ${NETWORK} --format {{range .IPAM.Config}}{{println .Gateway}}{{end}}" ] &&
printf 'fc00:f853:ccd:e793::1\n172.18.0.1\n\n'`,
		"minikube": `case "$*" in
"profile list --output json") echo '{"invalid":[],"valid":[{"Name":"minikube","Status":"OK"}]}' ;;
"--profile minikube ssh -- getent hosts host.minikube.internal") printf '192.168.49.1\thost.minikube.internal\r\n' ;;
*) exit 1 ;;
esac`,
	} {
		must.Succeed(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	for _, tc := range []struct{ name, env, want string }{
		{"kind", "CONTEXT=kind-a NETWORK=kind", "kind load image-archive --name a|172.18.0.1|172.18.0.1"},
		{"k3d", "CONTEXT=k3d-b NETWORK=k3d-b", "k3d image import --cluster b|172.18.0.1|172.18.0.1"},
		{"minikube", "CONTEXT=minikube", "minikube --profile minikube image load|192.168.49.1|192.168.49.1"},
		{"Docker Desktop", "CONTEXT=docker-desktop", "docker load --input|host.docker.internal|127.0.0.1"},
		{"kind on macOS", "CONTEXT=kind-a SYSTEM=Darwin",
			"kind load image-archive --name a|host.docker.internal|127.0.0.1"},
		{"another", "CONTEXT=prod", "||"},
		{"given", "CONTEXT=kind-a FAIRLEAD_DEMO_LOAD=mine FAIRLEAD_DEMO_HOST_IP=192.0.2.1", "mine|192.0.2.1|192.0.2.1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c",
				`. ../../hack/demo-context.sh; detect_tool; printf '%s|%s|%s' "$LOAD" "$HOST" "$LISTEN"`)
			cmd.Env = append(strings.Fields(tc.env), "PATH="+bin+":"+os.Getenv("PATH"))
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != tc.want {
				t.Errorf("%s: %q, %v; want %q", tc.env, out, err, tc.want)
			}
		})
	}
}
