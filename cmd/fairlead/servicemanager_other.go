// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package main

import "context"

// underServiceManager runs the program. systemd and launchd start it as a shell does.
func underServiceManager(program func(context.Context) int) int { return program(context.Background()) }
