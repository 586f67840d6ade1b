// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agentconfig

import (
	"fmt"
	"io"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
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

// APIKeyHint is the remedy for a missing or refused API key.
const APIKeyHint = "run `fairlead login` and paste an API key, or set " + EnvAPIKey

// CheckAPIKey checks the form of an API key that is pasted or that the config file holds. What
// comes from elsewhere may be the token of a ServiceAccount. source names the key in the error,
// which is a *CredentialError.
func CheckAPIKey(source, key string) error {
	return checkForm(source, key, credentialForm{noun: "an API key", prefix: account.APIKeyPrefix, hint: APIKeyHint,
		otherPrefix: account.AuthtokenPrefix,
		other: "is an authtoken (" + account.AuthtokenPrefix + "…), which is for agents; the API needs an API key (" +
			account.APIKeyPrefix + "…), made by `fairlead-server api-key create`"})
}

// ReadAPIKey reads one API key and nothing else, e.g. from standard input, and checks its form.
func ReadAPIKey(source string, r io.Reader) (string, error) {
	return readCredential(source, r, CheckAPIKey)
}

// resolveAPIKey finds the API key, whose form is for those to check who use it.
func (s *Settings) resolveAPIKey(flags Flags, env Getenv, f *file) error {
	if flags.APIKeyFile != "" {
		data, _, err := readLimited(flags.APIKeyFile)
		if err != nil {
			return fmt.Errorf("--api-key-file: %w", err)
		}
		s.apiKey = Value{strings.TrimSpace(string(data)), "--api-key-file " + flags.APIKeyFile}
		if s.apiKey.Text == "" {
			return fmt.Errorf("--api-key-file %q: the file is empty", flags.APIKeyFile)
		}
		return nil
	}
	s.apiKey = firstSet(Value{strings.TrimSpace(env(EnvAPIKey)), EnvAPIKey},
		Value{f.values[KeyAPIKey], f.source(KeyAPIKey)})
	return nil
}

// APIKey returns the API key of the account; "" when there is none.
func (s *Settings) APIKey() string { return s.apiKey.Text }

// APIKeySource names the source of the API key; "" when there is none.
func (s *Settings) APIKeySource() string { return s.apiKey.Source }

// APIKeyStored reports whether the API key is that of the config file.
func (s *Settings) APIKeyStored() bool { return s.apiKey.Source == s.file.source(KeyAPIKey) }

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
