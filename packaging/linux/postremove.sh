#!/bin/sh
# After a removal: lets systemd forget the unit. Data, user and what people put into /etc/fairlead stay.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
