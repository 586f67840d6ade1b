// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agentconfig

import (
	"fmt"
	"io"
	"strings"
)

// CredentialError reports a missing or malformed authtoken or API key. It never holds the secret.
type CredentialError struct{ Msg string }

// Error returns the sentence.
func (e *CredentialError) Error() string { return e.Msg }

const maxCredential = 256

// credentialForm describes the credentials of one kind.
type credentialForm struct {
	noun, prefix string // noun has its article
	hint         string // hint tells how to give another one
	otherPrefix  string // otherPrefix begins a credential of the other kind, of which other is said
	other        string
}

// checkForm checks the form of a credential. source names it in the error, which is a
// *CredentialError.
func checkForm(source, text string, f credentialForm) error {
	bad := func(why string) error { return &CredentialError{Msg: source + " " + why} }
	switch {
	case text == "":
		return bad("is empty; " + f.hint)
	case strings.HasPrefix(text, f.otherPrefix):
		return bad(f.other)
	case !strings.HasPrefix(text, f.prefix):
		return bad("is not " + f.noun + ": those begin with " + f.prefix + "; " + f.hint)
	case len(text) > maxCredential:
		return bad(fmt.Sprintf("is too long for %s (at most %d characters); paste nothing else", f.noun, maxCredential))
	}
	for _, c := range []byte(text[len(f.prefix):]) {
		if !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", rune(c)) {
			return bad("holds a character that no " + strings.TrimPrefix(f.noun, "an ") +
				" has; paste it again, whole and on one line")
		}
	}
	if len(text) == len(f.prefix) {
		return bad("is cut off after its prefix; paste it again, whole")
	}
	return nil
}

// readCredential reads one credential and nothing else, and checks it.
func readCredential(source string, r io.Reader, check func(source, text string) error) (string, error) {
	data, err := io.ReadAll(io.LimitReader(r, 4096))
	if err != nil {
		return "", fmt.Errorf("reading from %s: %w", source, err)
	}
	text := strings.TrimSpace(string(data))
	return text, check("the text from "+source, text)
}
