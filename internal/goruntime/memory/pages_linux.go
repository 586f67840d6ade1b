// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// releasePages releases b's pages to the system. b is all zeros then, and takes memory again where
// it is used.
func releasePages(b []byte) {
	page := os.Getpagesize()
	if over := int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) % uintptr(page)); over > 0 {
		b = b[min(page-over, len(b)):]
	}
	if b = b[:len(b)/page*page]; len(b) > 0 {
		_ = unix.Madvise(b, unix.MADV_DONTNEED)
	}
}
