// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serviceaccounttoken reads the ServiceAccount token that the kubelet keeps in a projected
// volume, and that a process of fairlead-operator presents to the service instead of an API key or
// an authtoken.
//
// What comes in: a path, of which the kubelet replaces the content when 80 % of the token's life
// have passed. Whom it hands over to: the clients of the account's API and the tunnels, which ask
// for the token of each request and session anew.
package serviceaccounttoken

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// maxSize bounds the file; tokens of API servers have 1 to 2 KiB.
const maxSize = 12 << 10

// File is a file with a ServiceAccount token. It is safe for concurrent use.
type File struct {
	path  string
	log   *slog.Logger
	clock clock.PassiveClock

	mu      sync.Mutex
	last    string    // the last token that the file held; "" = none yet
	expires time.Time // of last
	problem string    // the problem that was logged last; "" = none
}

// New returns the file at path. It need not exist yet.
func New(path string, log *slog.Logger) *File {
	return &File{path: path, log: log, clock: clock.RealClock{}}
}

// Credential reads what a process presents to the service.
type Credential interface{ Read() (string, error) }

// NewCredential returns the ServiceAccount token in tokenFile, or, without one, the secret in the
// file at secret.
func NewCredential(tokenFile, secret string, log *slog.Logger) Credential {
	if tokenFile != "" {
		return New(tokenFile, log)
	}
	return secretFile(secret)
}

// secretFile is the path of a file with a secret.
type secretFile string

// Read returns the secret without the white space around it.
func (f secretFile) Read() (string, error) {
	text, err := os.ReadFile(string(f))
	if err != nil {
		return "", fmt.Errorf("reading the credential: %w", err)
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return "", fmt.Errorf("the credential's file %s is empty", string(f))
	}
	return secret, nil
}

// Read returns the token. While the file is missing, empty or holds no token, that is the one it
// held before, for as long as that is valid. An expired token of the file is returned, as this
// machine's clock may be wrong: the service decides. Without any token the error is an
// *account.Error with CodeNoCredential that names file and remedy. What is wrong, and that it is
// right again, is logged once.
func (f *File) Read() (string, error) {
	token, expires, err := read(f.path)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.logProblem(err.Error())
		if f.last != "" && f.clock.Now().Before(f.expires) {
			return f.last, nil
		}
		return "", account.Errorf(account.CodeNoCredential, "%v", err)
	}
	f.last, f.expires = token, expires
	if f.clock.Now().Before(expires) {
		f.logProblem("")
		return token, nil
	}
	f.logProblem(fmt.Sprintf("the ServiceAccount token in %s has expired at %s and was not renewed: see whether the "+
		"kubelet of this node reaches the Kubernetes API server", f.path, expires.UTC().Format(time.RFC3339)))
	return token, nil
}

// Token returns what Read returns, "" instead of an error, which Read has logged.
func (f *File) Token() string {
	token, _ := f.Read()
	return token
}

// logProblem logs a problem that differs from the last one; "" is none. mu must be held.
func (f *File) logProblem(problem string) {
	if problem == f.problem {
		return
	}
	f.problem = problem
	if problem == "" {
		f.log.Info("the ServiceAccount token is valid again", "file", f.path, "expires", f.expires.UTC())
		return
	}
	f.log.Error("no valid ServiceAccount token; sessions that are established go on until their token expires",
		"error", problem)
}

// CheckFile returns an error that says what to mount if the file at path exists and holds something
// else than a ServiceAccount token. A file that is missing or empty is not an error: a process waits
// for it.
func CheckFile(path string) error {
	if _, _, err := read(path); errors.Is(err, errNoToken) {
		return err
	}
	return nil
}

var errNoToken = errors.New("it holds no ServiceAccount token: mount a projected volume with a serviceAccountToken " +
	"source there")

// read returns the token in the file at path and when it expires.
func read(path string) (token string, expires time.Time, err error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", time.Time{}, fmt.Errorf("the ServiceAccount token file %s does not exist: mount a projected volume "+
			"with a serviceAccountToken source there", path)
	}
	if err != nil {
		return "", time.Time{}, fmt.Errorf("opening the ServiceAccount token file: %w", err)
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, maxSize+1))
	if err != nil {
		return "", time.Time{}, fmt.Errorf("reading the ServiceAccount token file: %w", err)
	}
	token = strings.TrimSpace(string(text))
	if token == "" {
		return "", time.Time{}, fmt.Errorf("the ServiceAccount token file %s is empty: the kubelet fills it when it "+
			"reaches the Kubernetes API server", path)
	}
	expires, err = expiryOf(token)
	if err != nil || len(text) > maxSize {
		return "", time.Time{}, fmt.Errorf("reading the ServiceAccount token file %s: %w", path, errNoToken)
	}
	return token, expires, nil
}

// expiryOf returns the time in the claim exp of a JSON Web Token. It verifies nothing: that is the
// service's.
func expiryOf(token string) (time.Time, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}, errNoToken
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}, errNoToken
	}
	var claims struct {
		Expires int64 `json:"exp"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil || claims.Expires <= 0 {
		return time.Time{}, errNoToken
	}
	return time.Unix(claims.Expires, 0), nil
}
