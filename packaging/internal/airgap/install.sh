#!/bin/sh
# Installs Fairlead @VERSION@ from this folder, without a network. `./install.sh --help` tells how.
set -eu

VERSION=@VERSION@
ARCH=@ARCH@

usage() {
	cat <<EOF
Installs Fairlead $VERSION for linux/$ARCH from this folder, without a network.

Usage: ./install.sh [OPTION…] check|images|operator|server [-- HELM_ARGUMENT…]

  check      compare the files of this folder with checksums.txt, and do nothing else
  images     load the images of operator, server and agent into this node's container runtime
  operator   load the operator's image, and install or upgrade its chart
  server     load the server's image, and install or upgrade its chart

  --runtime NAME   k3s, rke2, containerd or docker; without it the first of these that is found
  --no-images      load nothing: the nodes have the images, or pull them from a registry of yours
  --help           this text

Every node that may run the pods needs their image: run \`./install.sh images\` on each of them, as root, and then
\`./install.sh --no-images operator -- …\` once, where helm and a kubeconfig are. Charts are installed under their own
names into the namespace fairlead, which is made; arguments after -- go to \`helm upgrade --install\` and win:

  ./install.sh server -- --set baseURL=https://fairlead.example.com
  ./install.sh operator -- --set api.url=https://fairlead.example.com --set-file api.caBundle=ca.crt \\
    --set credentials.existingSecret=fairlead
EOF
}

die() {
	echo "install.sh: $*" >&2
	exit 1
}

found() { command -v "$1" >/dev/null 2>&1; }

check_files() {
	found sha256sum || die "sha256sum is not in PATH: install coreutils or busybox"
	[ -f checksums.txt ] || die "checksums.txt is missing: unpack the archive again"
	differences=$(sha256sum -c checksums.txt 2>&1) ||
		die "files are not those of the release; copy the archive again, and compare it with the release's checksums.txt:
$(echo "$differences" | grep -v ': OK$')"
}

check_platform() {
	case $(uname -m) in
	x86_64 | amd64) machine=amd64 ;;
	aarch64 | arm64) machine=arm64 ;;
	*) machine=$(uname -m) ;;
	esac
	[ "$(uname -s)/$machine" = "Linux/$ARCH" ] ||
		die "these images are for linux/$ARCH, and this is $(uname -s)/$machine: take fairlead_${VERSION}_airgap_linux_$machine.tar.gz, or give --no-images to only install a chart"
}

rke2_ctr=/var/lib/rancher/rke2/bin/ctr

choose_runtime() {
	if [ -n "$runtime" ]; then
		return
	elif found k3s; then
		runtime=k3s
	elif [ -x $rke2_ctr ]; then
		runtime=rke2
	elif found ctr; then
		runtime=containerd
	elif found docker; then
		runtime=docker
	else
		die "no container runtime is found: none of k3s, rke2, ctr (containerd) and docker is in PATH; run this on the nodes, or give --no-images if they have the images"
	fi
}

load() {
	for image; do
		echo "loading ghcr.io/fairlead-dev/$image:$VERSION with $runtime"
		file=images/$image.tar
		case $runtime in
		k3s) k3s ctr --namespace k8s.io images import "$file" ;;
		rke2) $rke2_ctr --address /run/k3s/containerd/containerd.sock --namespace k8s.io images import "$file" ;;
		containerd) ctr --namespace k8s.io images import "$file" ;;
		docker) docker load --input "$file" ;;
		esac || die "$runtime does not take the image $file: is it running, and are you root?"
	done
}

runtime='' load_images=yes
while [ $# -gt 0 ]; do
	case $1 in
	--help | -h) usage; exit 0 ;;
	--no-images) load_images='' ;;
	--runtime)
		[ $# -gt 1 ] || die "--runtime needs a name: k3s, rke2, containerd or docker"
		runtime=$2
		shift
		;;
	--runtime=*) runtime=${1#*=} ;;
	-*) die "unknown option $1: see ./install.sh --help" ;;
	*) break ;;
	esac
	shift
done
case $runtime in
'' | k3s | rke2 | containerd | docker) ;;
*) die "--runtime $runtime is not known: give k3s, rke2, containerd or docker" ;;
esac
[ $# -gt 0 ] || die "nothing to do: give check, images, operator or server; see ./install.sh --help"
task=$1
shift
if [ "${1:-}" = -- ]; then
	shift
elif [ $# -gt 0 ]; then
	die "unknown argument $1: arguments of helm come after --"
fi
case $task in
check | images) [ $# -eq 0 ] || die "$task takes no arguments of helm" ;;
operator | server) found helm || die "helm is not in PATH: install helm 3 (one binary), or load the images only with ./install.sh images" ;;
*) die "unknown task $task: give check, images, operator or server" ;;
esac

# Values files that are given after -- are named from where the caller is.
caller=$PWD
cd "$(dirname "$0")"
check_files
case $task in
check) echo "all files are those of Fairlead $VERSION for linux/$ARCH"; exit 0 ;;
images) images='fairlead-operator fairlead-server fairlead-agent' ;;
*) images=fairlead-$task ;;
esac
if [ -n "$load_images" ]; then
	check_platform
	choose_runtime
	# shellcheck disable=SC2086 # a list of names
	load $images
fi
[ "$task" != images ] || exit 0
bundle=$PWD
cd "$caller"
echo "installing the chart fairlead-$task $VERSION"
exec helm upgrade --install "fairlead-$task" "$bundle/charts/fairlead-$task-$VERSION.tgz" \
	--namespace fairlead --create-namespace "$@"
