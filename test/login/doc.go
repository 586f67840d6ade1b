// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package login logs people in end to end: a whole service with its public edge, agents, the
// identity providers of test/idp, and browsers, a small one over HTTP and Chromium. It owns what
// happens between them; what each of them does alone is tested where it is. What comes in: the
// program of test/idp, named by FAIRLEAD_IDP, and Chromium. It hands over to nobody.
package login
