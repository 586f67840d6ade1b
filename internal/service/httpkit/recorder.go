// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package httpkit

import "net/http"

// ResponseRecorder remembers the status that was answered.
type ResponseRecorder struct {
	http.ResponseWriter
	status int
}

// Status returns the status that was answered, 0 before the answer has begun.
func (w *ResponseRecorder) Status() int { return w.status }

// Begun reports whether the answer has begun.
func (w *ResponseRecorder) Begun() bool { return w.status != 0 }

// WriteHeader implements http.ResponseWriter.
func (w *ResponseRecorder) WriteHeader(status int) {
	if !w.Begun() {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *ResponseRecorder) Write(b []byte) (int, error) {
	if !w.Begun() {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w *ResponseRecorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
