// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"
)

// pathTraffic takes questions about what a replica has recorded of its traffic.
const pathTraffic = "/traffic"

// errNotLinked is the error of a peer that is not asked.
var errNotLinked = errors.New("there is no link with the replica, or it does not answer pings")

// TrafficAnswer is a peer's answer to AskTraffic.
type TrafficAnswer struct {
	ReplicaID string
	Body      []byte
	Err       error // it did not answer within a second
}

// AskTraffic asks all peers at once what they have recorded of their traffic, and waits a second at
// most. It returns an answer for each peer, in the order of their ids; those that stop are peers,
// too.
func (p *Peers) AskTraffic(ctx context.Context, question []byte) []TrafficAnswer {
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	var mu sync.Mutex
	var all []TrafficAnswer
	var asking sync.WaitGroup
	for id, pr := range p.livePeers() {
		asking.Go(func() {
			a := TrafficAnswer{ReplicaID: id, Err: errNotLinked}
			if pr.canBeAsked() {
				a.Err = pr.call(ctx, http.MethodPost, pathTraffic, question, &a.Body)
			}
			if a.Err != nil {
				p.log.Debug("a replica did not answer a question about its traffic", "replica", id, "err", a.Err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, a)
		})
	}
	asking.Wait()
	slices.SortFunc(all, func(a, b TrafficAnswer) int { return cmp.Compare(a.ReplicaID, b.ReplicaID) })
	return all
}

// LastLeft returns when a replica last left the registry, because it stopped or died: what it had
// recorded is lost. Zero = none has since New.
func (p *Peers) LastLeft() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastLeft
}

// canBeAsked reports whether the peer has a link and answers pings.
func (pr *peer) canBeAsked() bool {
	pr.peers.mu.Lock()
	defer pr.peers.mu.Unlock()
	return pr.link != nil && !pr.isSilentLocked()
}
