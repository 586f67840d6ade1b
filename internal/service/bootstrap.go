// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// BootstrapFileName is the file in the data directory for the first secrets, used without a
// terminal and when no other file was named.
const BootstrapFileName = "bootstrap.txt"

// bootstrapMessage is what the service shows at its first start.
type bootstrapMessage struct {
	APIKey, Authtoken     string
	BaseURL               string
	CAFingerprint         string // "" = the certificate comes from files
	DataDir, AccountLabel string
	Postgres              bool   // Postgres is set where the authority lies in the database.
	Kept                  string // Kept are sentences: where the secrets are kept, and how they are removed.
}

// bootstrap ensures the secrets of the bootstrap files, and gives an empty store its account, key
// and token. Secrets never go into the log.
func bootstrap(ctx context.Context, st *store.Store, o *Options, w bootstrapMessage) error {
	if err := ensureSecrets(ctx, st, o); err != nil {
		return err
	}
	out, err := openSecretOutput(o)
	if err != nil {
		return err
	}
	defer out.discard()
	made, created, err := st.Bootstrap(ctx)
	if err != nil || !created {
		return err
	}
	if dir, err := filepath.Abs(w.DataDir); err == nil {
		w.DataDir = dir // the commands may be run elsewhere
	}
	w.APIKey, w.Authtoken = made.APIKeySecret, made.AuthtokenSecret
	w.AccountLabel, w.Kept = made.Account.Name+", "+made.Account.ID, out.kept(w.DataDir)
	if err := out.write(w.text()); err != nil {
		return fmt.Errorf(
			"showing the first API key and authtoken (make new ones with `fairlead-server api-key create` and "+
				"`fairlead-server authtoken create`): %w", err)
	}
	o.Logger.Info("first start: made an account with an API key and an authtoken",
		"account", made.Account.ID, "shown", out.where())
	return nil
}

func ensureSecrets(ctx context.Context, st *store.Store, o *Options) error {
	if err := ensureSecret(ctx, "API key", o.APIKeyFile, st.EnsureAPIKey, o.Logger); err != nil {
		return err
	}
	return ensureSecret(ctx, "authtoken", o.AuthtokenFile, st.EnsureAuthtoken, o.Logger)
}

func ensureSecret(
	ctx context.Context, kind, file string, ensure func(context.Context, string) (bool, error), log *slog.Logger,
) error {
	if file == "" {
		return nil
	}
	secret, err := readSecret(file)
	if err != nil {
		return fmt.Errorf("reading the bootstrap %s: %w", kind, err)
	}
	created, err := ensure(ctx, secret)
	if err != nil {
		return fmt.Errorf("ensuring the bootstrap %s of %s: %w", kind, file, err)
	}
	if created {
		log.Info("made the credential of a bootstrap file", "kind", kind, "file", file)
	}
	return nil
}

// readSecret reads a small file that holds one secret.
func readSecret(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(b)), nil
}

// secretOutput is the terminal or the file for the first secrets. It is opened before they are
// made, so that they are not lost when it cannot be opened.
type secretOutput struct {
	terminal io.Writer
	path     string
	tmp      *os.File
	log      *slog.Logger
}

func openSecretOutput(o *Options) (*secretOutput, error) {
	s := &secretOutput{path: o.BootstrapFile, log: o.Logger}
	if s.path == "" && o.Terminal != nil {
		s.terminal = o.Terminal
		return s, nil
	}
	s.path = cmp.Or(s.path, filepath.Join(o.DataDir, BootstrapFileName))
	var err error
	if s.path, err = filepath.Abs(s.path); err != nil {
		return nil, fmt.Errorf("opening --bootstrap-file: %w", err)
	}
	s.tmp, err = os.CreateTemp(filepath.Dir(s.path), ".bootstrap-*") // mode 0600
	if err != nil {
		return nil, fmt.Errorf("opening --bootstrap-file %s: %w; name a file in a directory that this user may write",
			s.path, err)
	}
	return s, nil
}

func (s *secretOutput) where() string {
	if s.terminal != nil {
		return "on the terminal"
	}
	return s.path
}

// kept returns sentences: where the secrets are kept, and how they are removed.
func (s *secretOutput) kept(dataDir string) string {
	const hashes = "The service keeps only the hashes of both"
	if s.terminal != nil {
		return hashes + ", and no file has the secrets: store them now. What records\nthis terminal has them, too, " +
			"such as `docker logs` after `docker run -t`."
	}
	remove := "rm " + s.path
	if s.path == filepath.Join(dataDir, BootstrapFileName) {
		remove = "fairlead-server bootstrap --remove --data-dir " + dataDir
	}
	return hashes + ". This text stays in a file until you remove that:\n" + remove
}

func (s *secretOutput) write(text []byte) error {
	if s.terminal != nil {
		_, err := s.terminal.Write(text)
		return err
	}
	_, err := s.tmp.Write(text)
	if err == nil {
		err = s.tmp.Sync()
	}
	if err = errors.Join(err, s.tmp.Close()); err != nil {
		return err
	}
	err = os.Rename(s.tmp.Name(), s.path)
	if err == nil {
		s.tmp = nil
	}
	return err
}

// discard removes the temporary file unless write has renamed it.
func (s *secretOutput) discard() {
	if s.tmp == nil {
		return
	}
	_ = s.tmp.Close()
	if err := os.Remove(s.tmp.Name()); err != nil {
		s.log.Warn("a temporary file stays behind", "file", s.tmp.Name(), "err", err)
	}
}

func (w bootstrapMessage) text() []byte {
	var b bytes.Buffer
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	trustFlag, helmCA := "", ""
	p("Fairlead's first start: account %s.", w.AccountLabel)
	p("")
	p("  API key     %s    for a person: it may do everything", w.APIKey)
	p("  authtoken   %s    for agents: it may bind every URL, and do nothing else", w.Authtoken)
	p("")
	p("%s", w.Kept)
	p("")
	p("What to do next:")
	p("")
	at := "--data-dir " + w.DataDir
	if w.Postgres { // the URL may hold a password
		at = "--database-url-file FILE"
	}
	if w.CAFingerprint != "" {
		trustFlag, helmCA = " --ca-sha256 "+w.CAFingerprint, " --set-file api.caBundle=ca.crt"
		p("# the service's own certificate authority, for those who connect")
		p("fairlead-server ca %s > ca.crt", at)
		p("")
	}
	p("# where the upstream is: paste the authtoken when asked; then any pod of the namespace demo may call " +
		"http://hello.demo")
	p("fairlead config add-authtoken - --server %s%s", w.BaseURL, trustFlag)
	p("fairlead http 8080 --url http://hello.demo --binding kubernetes")
	p("")
	p("# for every cluster: give the service its issuer and public keys, with the API key (`fairlead login`, or")
	p("# FAIRLEAD_API_KEY); this prints the `helm install` of the operator, which then needs no secret")
	p("{ kubectl get --raw /.well-known/openid-configuration && kubectl get --raw /openid/v1/jwks; } |")
	p("  fairlead api clusters create --name prod --jwks-file -")
	p("")
	p("# or, with two secrets of its own, which are made here and may do no more than the operator needs")
	p("helm install fairlead-operator charts/fairlead-operator --namespace fairlead --create-namespace \\")
	p("  --set api.url=%s%s \\", w.BaseURL, helmCA)
	p("  --set credentials.apiKey=\"$(fairlead api api-keys create --scope operator --description prod)\" \\")
	p("  --set credentials.authtoken=\"$(fairlead api credentials create --acl 'connect:*' --description prod)\"")
	p("")
	p("# the dashboard, in a browser: sign in with the API key")
	p("%s/ui/", w.BaseURL)
	p("")
	return b.Bytes()
}
