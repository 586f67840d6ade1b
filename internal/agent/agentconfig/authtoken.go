// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agentconfig

import (
	"fmt"
	"io"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// AuthtokenHint is the remedy for a missing or refused authtoken.
const AuthtokenHint = "run `fairlead config add-authtoken -` and paste an authtoken, or set " + EnvAuthtoken

// CheckAuthtoken checks the form of an authtoken. source names it in the error, which is a
// *CredentialError.
func CheckAuthtoken(source, token string) error {
	return checkForm(source, token, credentialForm{noun: "an authtoken", prefix: account.AuthtokenPrefix,
		hint: AuthtokenHint, otherPrefix: account.APIKeyPrefix,
		other: "is an API key (" + account.APIKeyPrefix + "…), which is for the HTTP API; an agent needs an " +
			"authtoken (" + account.AuthtokenPrefix + "…), made by `fairlead-server authtoken create`"})
}

// ReadAuthtoken reads one authtoken and nothing else, e.g. from standard input, and checks it.
func ReadAuthtoken(source string, r io.Reader) (string, error) {
	return readCredential(source, r, CheckAuthtoken)
}

func readAuthtokenFile(path string) (string, error) {
	data, _, err := readLimited(path)
	if err != nil {
		return "", fmt.Errorf("reading --authtoken-file: %w", err)
	}
	token := strings.TrimSpace(string(data))
	return token, CheckAuthtoken("the content of --authtoken-file "+path, token)
}

// resolveToken finds and checks the authtoken.
func (s *Settings) resolveToken(flags Flags, env Getenv, f *file, stdin io.Reader) error {
	switch {
	case flags.AuthtokenFile == "-":
		token, err := ReadAuthtoken("standard input", stdin)
		s.authtoken = Value{token, "--authtoken-file -"}
		return err
	case flags.AuthtokenFile != "":
		token, err := readAuthtokenFile(flags.AuthtokenFile)
		s.authtoken, s.authtokenFile = Value{token, "--authtoken-file " + flags.AuthtokenFile}, flags.AuthtokenFile
		return err
	case env(EnvAuthtoken) != "":
		s.authtoken = Value{env(EnvAuthtoken), EnvAuthtoken}
		return CheckAuthtoken(EnvAuthtoken, s.authtoken.Text)
	case f.values[KeyAuthtoken] != "":
		s.authtoken = Value{f.values[KeyAuthtoken], f.source(KeyAuthtoken)}
		return CheckAuthtoken(s.authtoken.Source, s.authtoken.Text)
	}
	return nil
}

// AuthtokenSource names the source of the authtoken; "" when there is none.
func (s *Settings) AuthtokenSource() string { return s.authtoken.Source }

// Authtoken returns the authtoken, "" when there is none. A token that came from a file is read
// again, so that a rotated one is used from the next session on; while the file cannot be read or
// holds no authtoken, the last good one is returned. Safe for concurrent use.
func (s *Settings) Authtoken() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.authtokenFile != "":
		if token, err := readAuthtokenFile(s.authtokenFile); err == nil {
			s.authtoken.Text = token
		}
	case s.authtoken.Source == s.file.source(KeyAuthtoken):
		again, err := readFile(s.file.path, true)
		if err == nil && CheckAuthtoken("", again.values[KeyAuthtoken]) == nil {
			s.authtoken.Text = again.values[KeyAuthtoken]
		}
	}
	return s.authtoken.Text
}
