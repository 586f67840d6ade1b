// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podidentity owns the answer to the question which pod an address belongs to: the right
// one, or unknown, never a wrong one.
//
// What comes in: all pods of the cluster, of which it keeps namespace, name, ServiceAccount,
// addresses and the annotations that are wanted. Whom it hands over to: the forwarder puts the
// answer into the header of the stream that a connection becomes; for the edge it is the
// forwarder's statement and no more.
//
// Answers are decoded by hand (decode.go): of a pod's 10 KB those bytes are copied that are kept,
// as a list would otherwise be most of the forwarder's memory.
//
//	list of all pods (pages) -> watches of 4 s, one after the other -> table by address -> Lookup
//
// Unknown are: everything while the cluster has been silent for 5 s; addresses of nodes, as host
// processes, pods on the host's network and what a node rewrites all come from them; addresses that
// two live pods have; pods that are being deleted, whose address may be given away before anybody
// is told; addresses that no pod has. An address that is missing may belong to a pod that has just
// started, so it is waited for, once.
//
// How it is known that a watch is alive: it ends after 4 s by itself, and before the next one
// begins, one pod is listed without a version, which the API server can answer only when it reaches
// etcd. That answer, and every line of the watch, is a sign of life. A watch that hangs, or an API
// server that is cut off, thus turns everything into unknown within 5 s of its last word. What
// remains is the way of the news itself: kubelet to API server to here.
package podidentity
