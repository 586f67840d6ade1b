// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"os"
	"slices"
	"sync"
	"time"
)

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
