#!/bin/sh
# Before a removal (dpkg says remove, rpm 0), not before an upgrade: stops the service, and disables it.
set -e
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl --quiet stop @PROGRAM@.service
	fi
	if command -v systemctl >/dev/null; then
		systemctl --quiet disable @PROGRAM@.service
	fi
	;;
esac
