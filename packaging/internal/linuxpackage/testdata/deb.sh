# Runs in a copy of this Debian's root: installs the packages of 0.1.0, upgrades them to 0.2.0, removes and purges them.
set -eu
fail() { echo "FAIL: $*"; exit 1; }
quiet() { "$@" >/tmp/log 2>&1 || { cat /tmp/log; fail "$*"; }; }
cd /packages

printf 'no-triggers\nforce-unsafe-io\n' >/etc/dpkg/dpkg.cfg.d/fast
quiet dpkg -i fairlead_0.1.0_amd64.deb fairlead-server_0.1.0_amd64.deb
[ "$(fairlead)" = "fairlead 0.1.0" ] || fail "fairlead is $(command -v fairlead)"
[ "$(fairlead-server)" = "fairlead-server 0.1.0" ] || fail "fairlead-server is $(command -v fairlead-server)"
getent passwd fairlead-server | grep -q ':/var/lib/fairlead:/usr/sbin/nologin$' || fail "no user fairlead-server"
systemd-analyze verify --man=no /usr/lib/systemd/system/fairlead.service \
	/usr/lib/systemd/system/fairlead-server.service || fail "units"
for unit in fairlead fairlead-server; do
	[ "$(systemctl is-enabled $unit || :)" = disabled ] || fail "$unit is enabled"
done
man -w fairlead-api >/dev/null || fail "no manual page"
[ "$(stat -c '%a %U:%G' /etc/fairlead/server.env)" = "644 root:root" ] || fail "mode of server.env"
[ -z "$(find /usr/bin/fairlead /etc/fairlead /usr/share/doc/fairlead -type f -newermt @1000000001)" ] || fail "times of files"
quiet dpkg --verify fairlead fairlead-server
(. /usr/share/bash-completion/completions/fairlead) || fail "completion for bash"

# What people changed and added is kept.
systemctl --quiet enable fairlead-server
echo 'FAIRLEAD_SERVER_FLAGS="--base-url https://mine:8443"' >>/etc/fairlead/server.env
echo flt_secret >/etc/fairlead/authtoken
mkdir -p /var/lib/fairlead && echo data >/var/lib/fairlead/data
quiet dpkg -i fairlead_0.2.0_amd64.deb fairlead-server_0.2.0_amd64.deb
[ "$(fairlead)" = "fairlead 0.2.0" ] || fail "not upgraded"
grep -q mine /etc/fairlead/server.env || fail "the upgrade lost settings"
[ "$(systemctl is-enabled fairlead-server)" = enabled ] || fail "the upgrade disabled the service"

dpkg -L fairlead fairlead-server >/tmp/files
[ "$(grep -c . /tmp/files)" -gt 30 ] || fail "files: $(cat /tmp/files)"

quiet dpkg -r fairlead fairlead-server
! command -v fairlead-server || fail "not removed"
grep -q mine /etc/fairlead/server.env || fail "the removal lost settings"
[ ! -L /etc/systemd/system/multi-user.target.wants/fairlead-server.service ] || fail "the unit is still enabled"
quiet dpkg -i fairlead-server_0.2.0_amd64.deb
grep -q mine /etc/fairlead/server.env || fail "a new installation lost settings"
[ "$(systemctl is-enabled fairlead-server || :)" = disabled ] || fail "a new installation enabled the service"

quiet dpkg -P fairlead fairlead-server
[ "$(find /etc/fairlead -type f)" = /etc/fairlead/authtoken ] || fail "settings after a purge: $(ls /etc/fairlead)"
[ "$(cat /var/lib/fairlead/data)" = data ] || fail "the purge lost data"
while read -r path; do
	[ -d "$path" ] || [ ! -e "$path" ] || fail "$path is left over"
done </tmp/files
echo passed
