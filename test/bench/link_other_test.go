// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package bench

import (
	"testing"
	"time"
)

const nearIP, farIP = "", ""

type link struct{ near, far string }

func newLink(b testing.TB, _ time.Duration, _ float64) *link {
	b.Skip("the emulated link needs Linux: network namespaces and TUN devices")
	return nil
}

func (*link) setLoss(float64) {}
