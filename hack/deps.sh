#!/usr/bin/env bash
# Installs the Debian packages that the test cluster, the race detector and the tests of store, logins and pairs of clusters need; does nothing where they are present.
# "hack/deps.sh cluster" leaves out what only those tests need. Elsewhere, or without root, it says exactly what to install.
set -euo pipefail

missing=()
unwanted=()
need() { # COMMAND PACKAGE
	PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null || missing+=("$2")
}
need gcc gcc
[ -e /usr/include/stdlib.h ] || missing+=(libc6-dev)
need nft nftables
need runc runc
need curl curl
need ip iproute2
need nsenter util-linux
need make make
need git git
if [ "${1:-}" != cluster ]; then
	# For images of clusters that test the Multi-Cluster Services API.
	need socat socat
	need nc.openbsd netcat-openbsd
	need nslookup bind9-dnsutils
	need chromium chromium
	compgen -G '/usr/share/fonts/*/*' >/dev/null || missing+=(fonts-dejavu-core)
	# php-cgi and mini-httpd stand in for the Apache that SimpleSAMLphp would bring along and start; mini-httpd does not start by itself.
	[ -e /usr/share/simplesamlphp/www/index.php ] || missing+=(simplesamlphp php-cgi mini-httpd)
	need php php-cli
	# Packages of a release: rpms, manual pages, users and units, Homebrew's formula.
	need rpm rpm
	need ruby ruby
	need man man-db
	need systemd-sysusers systemd
	php -r 'exit(extension_loaded("dom") && extension_loaded("mbstring") && extension_loaded("pdo_sqlite") ? 0 : 1);' 2>/dev/null || missing+=(php-xml php-mbstring php-sqlite3)
	# promtool; nothing of the package may take the port 9090, neither now nor after a boot.
	command -v promtool >/dev/null || { missing+=(prometheus); unwanted+=(prometheus.service); }
	# A pooler before PostgreSQL; its unit must not start.
	command -v pgbouncer >/dev/null || { missing+=(pgbouncer); unwanted+=(pgbouncer.service); }
	# Proxies of test/carrier; their units must not start.
	for p in squid:squid-openssl tinyproxy:tinyproxy microsocks:microsocks; do
		PATH="$PATH:/usr/sbin" command -v "${p%%:*}" >/dev/null || { missing+=("${p#*:}"); unwanted+=("${p%%:*}.service"); }
	done
	command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || missing+=(postgresql)
fi

[ ${#missing[@]} -gt 0 ] || exit 0
if ! command -v apt-get >/dev/null || [ "$(id -u)" -ne 0 ]; then
	echo "missing: ${missing[*]} (names of Debian packages). Install them, on Debian and Ubuntu with:" >&2
	echo "  sudo apt-get update && sudo apt-get install -y ${missing[*]}" >&2
	exit 1
fi
echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
[ ${#unwanted[@]} -eq 0 ] || [ ! -d /run/systemd/system ] || systemctl mask --quiet "${unwanted[@]}"
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
