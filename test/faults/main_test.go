// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/test/support/testenv"
)

// config is an administrator's of the control plane that the tests share, apart by namespace.
var config *rest.Config

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "10"); err != nil { // most of the time they wait
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(testenv.Run(m, &config))
}
