// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/test/support/testenv"
)

var config *rest.Config

func TestReconciler(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "endpointsync")
}

var _ = BeforeSuite(func() { config = testenv.Start(GinkgoTB()) })
