// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

// Known returns how many endpoints, and ids of endpoints, the agent has state of.
func (a *Agent) Known() (endpoints, ids int) {
	a.endpoints.mu.Lock()
	defer a.endpoints.mu.Unlock()
	return len(a.endpoints.endpoints), len(a.endpoints.byID)
}

// WaitForShutdown returns when the agent binds nothing any more.
func (a *Agent) WaitForShutdown() { <-a.endpoints.stopping.Done() }
