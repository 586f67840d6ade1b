// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/sealed"
)

// The modes of private keys, and of other files.
const (
	Secret fs.FileMode = 0o600
	Public fs.FileMode = 0o644
)

// File is a file to be written.
type File struct {
	Name string
	Data []byte
	Mode fs.FileMode // Mode is Secret or Public.
}

// WriteFiles writes files into a folder; one that is not there is made, and only its owner may enter
// it. Without replace, none is written if one exists.
func WriteFiles(dir string, replace bool, files ...File) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, f := range files {
		if _, err := os.Lstat(filepath.Join(dir, f.Name)); err == nil && !replace {
			return fmt.Errorf("%s exists in %s: choose another folder, or give --force to replace it", f.Name, dir)
		}
	}
	for _, f := range files {
		f.Name = filepath.Join(dir, f.Name)
		if err := f.Write(); err != nil {
			return err
		}
	}
	return nil
}

// Write writes or replaces the file in one step: readers find the old content or the new, whole, also
// after a crash.
func (f File) Write() (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(f.Name), "."+filepath.Base(f.Name)+"-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // unless it was renamed
	if err = tmp.Chmod(f.Mode); err == nil {
		_, err = tmp.Write(f.Data)
	}
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", f.Name, err)
	}
	return os.Rename(tmp.Name(), f.Name)
}

// parseFile returns what a file has; errors name it.
func parseFile[T any](name string, parse func(text string) (T, error)) (*T, error) {
	text, err := ReadFile(name)
	if err != nil {
		return nil, err
	}
	read, err := parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &read, nil
}

const maxFile = 64 << 10

// ReadFile reads a file of at most 64 KiB.
func ReadFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s: it has more than 64 KiB", name)
	}
	return text, err
}

// The fields of an endpoint that errors name: the folder of its pair, and the files of its callers'
// authorities and clusters.
const (
	FieldSealed   = "sealed"
	FieldCallers  = "seal_callers"
	FieldClusters = "seal_clusters"
)

// OpenIdentity returns the identity of the pair tls.crt and tls.key in a folder, which is read again
// when it changes; so is callers, a PEM file with the authorities of the callers that are served, "" =
// all callers, and clusters, a file of Root.SignClusters for them, or "". An error is an *account.Error
// that names the field.
func OpenIdentity(dir, callers, clusters string) (*sealed.Identity, error) {
	source := &Source{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}
	cert, err := source.Certificate()
	if err != nil {
		return nil, account.Invalid(FieldSealed, dir, err.Error())
	}
	o := sealed.IdentityOptions{Account: cert.Leaf.URIs[0].Host, Certificate: source.Certificate,
		Files: []sealed.File{source}}
	if callers != "" {
		proving := &Callers{File: callers, Clusters: clusters, Account: o.Account}
		if _, err := proving.load(); err != nil {
			return nil, account.Invalid(FieldCallers, callers, err.Error())
		}
		if _, err := proving.loadClusters(); err != nil && clusters != "" {
			return nil, account.Invalid(FieldClusters, clusters, err.Error())
		}
		o.Callers, o.RequireCaller, o.Files = proving, true, append(o.Files, proving)
	}
	identity, err := sealed.NewIdentity(o)
	if err != nil {
		return nil, account.Invalid(FieldSealed, dir, err.Error())
	}
	return identity, nil
}

// CheckURL returns an error, an *account.Error, unless the certificate of the identity in the folder
// names an endpoint.
func CheckURL(dir string, i *sealed.Identity, u account.EndpointURL) error {
	if i.Covers(u) {
		return nil
	}
	return account.Invalid(FieldSealed, dir, "its certificate does not name "+u.String()+
		": have one signed that does, fairlead seal sign --url "+u.String())
}

// followed is what was read from files, which are read again when they change.
type followed[T any] struct {
	mu      sync.Mutex
	last    *T // last is what the files had when they were good; nil = they never were.
	files   []os.FileInfo
	err     error // err is why what is in the files now cannot be used.
	checked time.Time
}

// get returns the last good content of the files, and why what they have now cannot be used. It looks
// at them at most every 10 seconds.
func (f *followed[T]) get(load func() (*T, error), names ...string) (*T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); f.checked.IsZero() || now.Sub(f.checked) >= 10*time.Second {
		f.checked = now
		f.reload(load, names)
	}
	return f.last, f.err
}

// reload reads the files unless they are those of last. What they are is taken first: files that are
// replaced meanwhile are read again.
func (f *followed[T]) reload(load func() (*T, error), names []string) {
	files := make([]os.FileInfo, len(names))
	for i, name := range names {
		if files[i], f.err = os.Stat(name); f.err != nil {
			return
		}
	}
	if f.last != nil && slices.EqualFunc(files, f.files, func(a, b os.FileInfo) bool {
		return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
	}) {
		return
	}
	var read *T
	if read, f.err = load(); f.err == nil {
		f.last, f.files = read, files
	}
}
