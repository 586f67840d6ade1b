// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package printable makes texts fit for a terminal that came from a network: from the service, a cluster or somebody's request. A terminal acts on
// what such a text may hold. The agent's screen and `fairlead doctor` hand their texts in and print what comes out.
package printable

import (
	"strconv"
	"strings"
	"unicode"
)

// Text returns s with all that is not printable escaped as Go does it, cut after most characters with an ellipsis.
func Text(s string, most int) string {
	var b strings.Builder
	n := 0
	for _, r := range s {
		if n++; n > most {
			b.WriteString("…")
			break
		}
		if unicode.IsPrint(r) && r != unicode.ReplacementChar {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRuneToASCII(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}
