// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import "time"

// OpenHeader is the first flight of every data stream. Encoded it is at most 4 KiB.
type OpenHeader struct {
	EndpointID string        // at most 128 bytes
	Host       string        // of the endpoint's URL, at most 255 bytes
	Port       int           // of the endpoint's URL
	ClientAddr string        // host:port of the pod or client, at most 128 bytes
	TraceID    string        // at most 128 bytes
	Deadline   time.Duration // how long the opener waits for OPENED, in whole milliseconds; 0 = it does not say
	Pod        *PodIdentity  // the forwarder's statement; nil = unknown
}

// PodIdentity is the calling pod as the forwarder sees it.
type PodIdentity struct {
	Namespace      string
	Name           string
	ServiceAccount string
	Truncated      bool // the header was too small for the identity: some of it is cut
}
