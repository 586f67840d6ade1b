#!/usr/bin/env bash
# Record the main job as docs/recording.svg: an agent starts, and a pod calls its endpoint. Everything in the picture is
# real: two terminals of tmux, beside the cluster of `make demo`, which has to be up.
set -euo pipefail
cd "$(dirname "$0")/.."

CLUSTER=$PWD/bin/cluster
WORK=$(mktemp -d)
FRAMES=$WORK/frames
SOCKET=fairlead-recording
tm() { tmux -L $SOCKET "$@"; }
trap 'tm kill-server 2>/dev/null || true; rm -rf "$WORK"' EXIT

command -v tmux >/dev/null || { echo "recording: tmux is missing: apt-get install tmux" >&2; exit 1; }
"$CLUSTER" exec --name demo -- kubectl get pod -n demo curl >/dev/null ||
	{ echo "recording: run make demo first" >&2; exit 1; }

# shell NAME is a shell beside the cluster, with a prompt and nothing of the person who records.
shell() {
	echo "$CLUSTER exec --name demo -- env -i HOME=$WORK TERM=tmux-256color LANG=C.UTF-8 KUBECONFIG=\$KUBECONFIG \
		PATH=$PWD/bin:\$PATH XDG_CONFIG_HOME=$PWD/.demo XDG_STATE_HOME=$PWD/.demo/recording PS1='$1 \$ ' bash --norc --noprofile"
}
in_shell() { "$CLUSTER" exec --name demo -- sh -c "echo $1"; }
KUBECONFIG=$(in_shell '$KUBECONFIG') && export KUBECONFIG

# watch writes every change of the two terminals to the file of frames: the milliseconds since the start, then both.
watch() {
	local began now last='' frame
	began=$(date +%s%3N)
	while frame=$(tm capture-pane -e -p -t main.0 && printf '\f\n' && tm capture-pane -e -p -t main.1); do
		now=$(date +%s%3N)
		if [ "$frame" != "$last" ]; then printf '\v%d\n%s\n' $((now - began)) "$frame" >>"$FRAMES"; fi
		last=$frame
		sleep 0.05
	done 2>/dev/null
}

# type_in PANE TEXT types as a person does.
type_in() {
	local i
	for ((i = 0; i < ${#2}; i++)); do
		tm send-keys -t "main.$1" -l -- "${2:i:1}"
		sleep 0.04
	done
	sleep 0.3
	tm send-keys -t "main.$1" Enter
}

# shows PANE TEXT waits until the terminal shows the text.
shows() {
	local i
	for ((i = 0; i < 300; i++)); do
		if tm capture-pane -p -t "main.$1" | grep -qF -- "$2"; then return; fi
		sleep 0.1
	done
	echo "recording: terminal $1 does not show: $2" >&2
	exit 1
}

tm -f /dev/null new-session -d -s main -x 110 -y 24 "$(shell laptop)"
tm set -g status off
tm split-window -v -l 11 -t main.0 "$(shell cluster)"
shows 0 'laptop $'
shows 1 'cluster $'
watch &
sleep 1
type_in 0 'fairlead http 8080 --url http://api.demo --binding kubernetes'
shows 0 'http://api.demo'
sleep 2
type_in 1 'kubectl -n demo exec curl -- curl -sS http://api.demo'
sleep 3
type_in 1 'kubectl get boundendpoints -n fairlead'
shows 1 'api.demo'
sleep 3
tm kill-server
wait
go run ./hack/recording -out docs/recording.svg <"$FRAMES"
