// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterset

// InstallCRDs is the command that installs the CRDs of the Multi-Cluster Services API, which are
// the user's to install.
const InstallCRDs = "kubectl apply -f " + crds + "serviceexports.yaml -f " + crds + "serviceimports.yaml"

const crds = "https://raw.githubusercontent.com/kubernetes-sigs/mcs-api/v0.5.2/config/crd/multicluster.x-k8s.io_"
