// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// TestEdgeClient_LogsCauseOnce checks that an outage, which has one cause and many attempts, is
// logged once.
func TestEdgeClient_LogsCauseOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	e := newEdgeClient(&Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, 0, func() {},
		func(tunnel.RequestLine) {})
	for _, text := range []string{
		"greeting edge:8443: the tunnel's connection broke: read tcp 10.244.0.5:40001->10.99.0.2:8443: read: " +
			"connection " +
			"reset by peer",
		"greeting edge:8443: the tunnel's connection broke: read tcp 10.244.0.5:40002->10.99.0.2:8443: read: " +
			"connection " +
			"reset by peer",
		"greeting edge:8443: the tunnel's connection broke: read tcp [fd00::5]:40003->10.99.0.2:8443: read: " +
			"connection " +
			"reset by peer",
	} {
		e.recordError(errors.New(text))
	}
	if n := strings.Count(log.String(), "no session"); n != 1 ||
		!strings.Contains(log.String(), "read tcp 10.99.0.2:8443: read: connection reset") {
		t.Errorf("%d lines: %s", n, &log)
	}
}
