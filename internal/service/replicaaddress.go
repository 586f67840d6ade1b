// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/service/store/membership"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// addressBook keeps the addresses at which clients reach the replicas. An address counts if its row
// has the HMAC under a key that is derived from the secret key: who can write the database must not
// make clients dial.
type addressBook struct {
	key [seal.KeySize]byte
	log *slog.Logger

	mu     sync.Mutex // guards what follows
	all    []tunnel.ReplicaAddress
	warned map[string]bool // by replica id
}

func newAddressBook(key *seal.Key, log *slog.Logger) *addressBook {
	return &addressBook{key: key.Derive("addresses of replicas"), log: log, warned: make(map[string]bool)}
}

// mac authenticates a replica's address.
func (b *addressBook) mac(replicaID, address string) string {
	h := hmac.New(sha256.New, b.key[:])
	_, _ = fmt.Fprintf(h, "%d %s%s", len(replicaID), replicaID, address)
	return hex.EncodeToString(h.Sum(nil))
}

// update takes the addresses of live replicas that do not drain from their rows. It logs once of a
// replica whose address is not authentic.
func (b *addressBook) update(rows []membership.Replica) {
	var all []tunnel.ReplicaAddress
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range rows {
		switch {
		case r.Address == "" || r.Draining:
		case hmac.Equal([]byte(r.AddressMAC), []byte(b.mac(r.ID, r.Address))):
			all = append(all, tunnel.ReplicaAddress{ID: r.ID, Address: r.Address})
		case !b.warned[r.ID]:
			b.warned[r.ID] = true
			b.log.Error("clients are not told the address of a replica: its row was not written by a server with this "+
				"secret key; see who can write to the database", "replica", r.ID, "address", r.Address)
		}
	}
	b.all = all
}

// addresses returns those of the last update.
func (b *addressBook) addresses() []tunnel.ReplicaAddress {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.all)
}

// replicaHeader names the replica that answers a request to the service's listener.
const replicaHeader = "Fairlead-Replica"

// addressCheckTimeout bounds how long a start waits for the answer at --replica-address.
const addressCheckTimeout = 3 * time.Second

// checkAddress returns an error if something else than this replica answers at its address for
// clients. No answer is logged: some networks do not lead a machine back to itself.
func (r *replicas) checkAddress(ctx context.Context) error {
	address := r.set.Replica.Address
	if address == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, addressCheckTimeout)
	defer cancel()
	answered, err := r.ask(ctx, r.set.replicaAddress)
	switch {
	case err != nil:
		r.log.Warn("whether --replica-address leads to this server could not be checked: nothing answers there from "+
			"here", "replica_address", address, "err", err)
		return nil
	case answered == r.id:
		return nil
	}
	return account.Invalid("--replica-address", address, answered+" answers there: give the address at which clients "+
		"reach this server itself, not the balancer's and not another server's, or leave it out")
}

// ask returns the id of the replica that answers at an address, or a description of what does
// instead. An error means that nothing does.
func (r *replicas) ask(ctx context.Context, address string) (string, error) {
	// The certificate is not verified: what is asked for is no secret, and clients do verify it.
	config := &tls.Config{ServerName: r.set.baseURL.Hostname(), InsecureSkipVerify: true,
		NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS13}
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true,
		DialContext: (&net.Dialer{}).DialContext}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, "https://"+address+"/", nil)
	if err != nil {
		return "", err
	}
	res, err := transport.RoundTrip(req)
	switch {
	case errors.As(err, new(tls.RecordHeaderError)):
		return "a program that does not speak TLS", nil
	case errors.As(err, new(tls.AlertError)):
		return "a program that refuses the TLS handshake", nil
	case err != nil:
		return "", err
	}
	_ = res.Body.Close()
	if id := res.Header.Get(replicaHeader); account.ValidID(account.PrefixReplica, id) {
		return id, nil
	} else if id != "" {
		return fmt.Sprintf("a server that calls itself %q", account.Shorten(id)), nil
	}
	return "a server that is no replica of this service", nil
}
