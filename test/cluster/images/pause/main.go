// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Command pause holds a pod's namespaces open and ends on SIGINT or SIGTERM.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM)
	go func() { // reap orphans when the pod shares its process namespace
		z := make(chan os.Signal, 1)
		signal.Notify(z, syscall.SIGCHLD)
		for range z {
			for {
				if p, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); p <= 0 || err != nil {
					break
				}
			}
		}
	}()
	<-c
}
