// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"regexp"
	"time"
)

// Prefixes of the identifiers of each noun.
const (
	PrefixAccount       = "ac"
	PrefixEndpoint      = "ep"
	PrefixOperator      = "op"
	PrefixTunnelSession = "ts"
	PrefixAPIKey        = "ak"
	PrefixCredential    = "cr"
	PrefixOperation     = "rq"
	PrefixStore         = "st"
	PrefixTunnel        = "tn"
	PrefixEvent         = "ev"
	PrefixUser          = "au" // application user: an identity
	PrefixAppSession    = "as" // application session
	PrefixReplica       = "rp" // one of several servers of a store

	PrefixCluster        = "cl" // whose ServiceAccounts are trusted
	PrefixClusterSubject = "cs" // one of these ServiceAccounts
)

var idEncoding = base32.HexEncoding.WithPadding(base32.NoPadding)

var idPattern = regexp.MustCompile(`^[a-z]{2,5}-[0-9a-v]{26}$`)

// NewID makes an identifier: prefix, hyphen, 26 characters of lower-case base32hex over 48 bits of
// milliseconds and 80 random bits. Identifiers of one prefix sort by time of creation, have at most
// 32 characters and are DNS-1035 labels, so that an endpoint's id can be a Service's name.
func NewID(prefix string, now time.Time) string {
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:8], uint64(now.UnixMilli())<<16)
	_, _ = rand.Read(raw[6:]) // crypto/rand.Read never returns an error (Go 1.24)
	out := make([]byte, 0, len(prefix)+27)
	out = append(out, prefix...)
	out = append(out, '-')
	for _, c := range []byte(idEncoding.EncodeToString(raw[:])) {
		if c >= 'A' && c <= 'V' {
			c += 'a' - 'A'
		}
		out = append(out, c)
	}
	return string(out)
}

// ValidID reports whether id has the form that NewID gives identifiers of this prefix.
func ValidID(prefix, id string) bool {
	return len(id) == len(prefix)+27 && id[:len(prefix)] == prefix && idPattern.MatchString(id)
}
