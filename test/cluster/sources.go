// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "embed"

// sources is all that the binaries of the cluster are built from, so that this program works from
// any folder and knows the name of its cache without looking for a checkout.
//
//go:embed go.mod go.sum kubenode/*.go kubernetes/* helm/* coredns/*.go images/*/*.go mkimage/*.go
var sources embed.FS
