// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package client proves that a client which was generated for the public API that ours follows
// drives fairlead-server unchanged, but for the name of the version header. It is a module of its
// own, so that the client is no dependency of the product. What comes in: the sources of the
// programs, which its tests build and start.
package client
