// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clusterset derives what the clusters of an account import under the name of a Service
// from the exports of that name (KEP-1645): the fields of the ServiceImport, the ports that each
// cluster serves, and the conflicts between exports. It is a pure function of the exports, whose
// order of precedence the service decides, so that every cluster comes to the same result. The
// exporter reports the conflicts on its ServiceExports; the manager writes ServiceImports with the
// rest.
package clusterset
