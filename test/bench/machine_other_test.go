// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package bench

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"
)

func needs(b *testing.B, _ int) { b.Fatal("the measurement needs Linux: it reads /proc") }

func needsLink(b *testing.B, _ []string) {
	b.Fatal("the emulated link needs Linux: network namespaces and TUN devices")
}

func cpuTime(int) (time.Duration, error) { return 0, errors.ErrUnsupported }

const nearIP, directFarIP = "", ""

type link struct{ near, far string }

func newLink(b testing.TB, _ string, _ time.Duration, _, _ float64) *link {
	b.Fatal("the emulated link needs Linux: network namespaces and TUN devices")
	return nil
}

func (*link) fullestSecond() float64 { return 0 }

func unprivilegedCommand() *exec.Cmd { return exec.Command(os.Args[0]) }

func giveAway(testing.TB, string) {}
