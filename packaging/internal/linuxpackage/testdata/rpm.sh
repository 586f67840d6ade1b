# Runs in a copy of this Debian's root with its own rpm: installs the packages of 0.1.0, upgrades and removes them.
set -eu
fail() { echo "FAIL: $*"; exit 1; }
quiet() { "$@" >/tmp/log 2>&1 || { cat /tmp/log; fail "$*"; }; }
cd /packages

quiet rpm -i --nodeps fairlead-0.1.0-1.x86_64.rpm fairlead-server-0.1.0-1.x86_64.rpm
[ "$(fairlead)" = "fairlead 0.1.0" ] || fail "fairlead is $(command -v fairlead)"
getent passwd fairlead-server | grep -q ':/var/lib/fairlead:/usr/sbin/nologin$' || fail "no user fairlead-server"
[ "$(systemctl is-enabled fairlead-server || :)" = disabled ] || fail "fairlead-server is enabled"
quiet rpm -V --nodeps fairlead fairlead-server
systemctl --quiet enable fairlead-server
echo 'FAIRLEAD_SERVER_FLAGS="--base-url https://mine:8443"' >>/etc/fairlead/server.env
quiet rpm -U --nodeps fairlead-0.2.0-1.x86_64.rpm fairlead-server-0.2.0-1.x86_64.rpm
[ "$(fairlead)" = "fairlead 0.2.0" ] || fail "not upgraded"
grep -q mine /etc/fairlead/server.env || fail "the upgrade lost settings"
[ "$(systemctl is-enabled fairlead-server)" = enabled ] || fail "the upgrade disabled the service"
quiet rpm -e fairlead fairlead-server
! command -v fairlead-server || fail "not removed"
grep -q mine /etc/fairlead/server.env.rpmsave || fail "the removal lost settings"
[ ! -L /etc/systemd/system/multi-user.target.wants/fairlead-server.service ] || fail "the unit is still enabled"
echo passed
