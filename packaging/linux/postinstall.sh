#!/bin/sh
# After an installation or an upgrade: makes the service's user, and lets systemd read the unit. Nothing is enabled,
# started or restarted.
set -e
if [ -e /usr/lib/sysusers.d/@PROGRAM@.conf ] && command -v systemd-sysusers >/dev/null; then
	systemd-sysusers @PROGRAM@.conf
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	if systemctl --quiet is-active @PROGRAM@.service; then
		echo "@PROGRAM@: the running service is still the old version; run: systemctl restart @PROGRAM@"
	fi
fi
