// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// Variables that make the tests longer or stricter; docs/build/testing.md describes them.
const (
	restartsVariable    = "FAIRLEAD_REPLICAS_RESTARTS"    // rolling restarts of a server
	killsVariable       = "FAIRLEAD_REPLICAS_KILLS"       // servers that are killed
	outageVariable      = "FAIRLEAD_REPLICAS_OUTAGE"      // how long PostgreSQL is away
	revocationsVariable = "FAIRLEAD_REPLICAS_REVOCATIONS" // people who are revoked
	eventsVariable      = "FAIRLEAD_REPLICAS_EVENTS"      // changes that are watched
	agentsVariable      = "FAIRLEAD_REPLICAS_AGENTS"      // agents of which a server dies
	rateVariable        = "FAIRLEAD_REPLICAS_RATE"        // requests a second
	sealedVariable      = "FAIRLEAD_REPLICAS_SEALED"      // how long sealed connections come and go
	targetsVariable     = "FAIRLEAD_REPLICAS_TARGETS"     // hold durations to their targets
)

// number returns the variable's value, or the default without it.
func number(t testing.TB, variable string, byDefault int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return byDefault
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// duration is number for a duration.
func duration(t testing.TB, variable string, byDefault time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return byDefault
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return d
}

// limit returns what a duration is held to: the target on a quiet machine, which the variable asks
// for, or what a busy one keeps.
func limit(target, busy time.Duration) time.Duration {
	if isSoak() {
		return target
	}
	return busy
}

// requestRate returns how many requests a second a load sends: few enough for the other tests that
// use the machine.
func requestRate(t *testing.T) int { return number(t, rateVariable, 50) }

// slowRequest returns the duration beyond which a request counts as one that waited for a fault to
// be noticed. A machine that other suites keep busy took 2.4 s for some without any.
func slowRequest() time.Duration { return limit(500*time.Millisecond, 4*time.Second) }

// isSoak reports whether the tests have a quiet machine and time.
func isSoak() bool { return os.Getenv(targetsVariable) != "" }
