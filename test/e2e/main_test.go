// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }
