// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podidentity maps an IP address to the pod that has it. A result is correct or unknown,
// never wrong.
//
// It lists and watches all pods of the cluster, of which it keeps namespace, name, ServiceAccount,
// addresses, labels and the selected annotations. The forwarder decides by it who may call a
// restricted endpoint, and sends it, without the labels, in the header of a connection's stream; for
// the edge it is a statement of the forwarder.
//
// list of all pods (pages) -> watches of 4 s, one after the other -> table by address -> Lookup
//
// Unknown are: all addresses while the cluster has been silent for 5 s; addresses of nodes, which
// host processes, pods on the host's network and connections rewritten by a node share; addresses
// that two live pods have; addresses of pods that are being deleted, as they may be reused before a
// watch event arrives; addresses of no pod. A missing address may belong to a pod that has just
// started, so the first lookup waits for it.
//
// How a watch proves to be alive: it ends after 4 s, and before the next one starts, one pod is
// listed without a version, which the API server can answer only through etcd. That response and
// every event of the watch are signs of life. A hanging watch, or an API server that is cut off,
// makes all addresses unknown within 5 s of its last sign. What remains is the delay of the change
// itself from kubelet through the API server.
package podidentity
