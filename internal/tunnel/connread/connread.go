// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package connread reads sockets without a buffer that waits for bytes, and recognizes the end of
// input. Input: a file descriptor of syscall.RawConn.Read, and a buffer. Output: the bytes that are
// available. The callers are internal/tunnel and internal/tunnel/relay.
package connread

import "io"

// IsEOF reports whether err is an ordinary end of input: the bare io.EOF. The error of a broken
// connection may wrap one.
func IsEOF(err error) bool { return err == io.EOF } //nolint:errorlint // see above
