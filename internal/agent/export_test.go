// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

// Known returns how many endpoints, and ids of endpoints, the agent has state of.
func (a *Agent) Known() (endpoints, ids int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.endpoints), len(a.byID)
}

// WaitForShutdown returns when the agent binds nothing any more.
func (a *Agent) WaitForShutdown() { <-a.shuttingDown }
