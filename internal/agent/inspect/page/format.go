// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
)

// Sides of an exchange.
const (
	requestSide  = "request"
	responseSide = "response"
)

// shorten returns at most the first bytes of a text, with an ellipsis when there were more.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}

// formatSize returns a number of bytes in the unit that fits.
func formatSize(n int64) string {
	switch {
	case n < 1<<10:
		return strconv.FormatInt(n, 10) + " B"
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

// formatDuration returns a duration with about three digits.
func formatDuration(d time.Duration) string {
	switch {
	case d <= 0:
		return "0 ms"
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
	d = d.Round(time.Second)
	if d < time.Hour {
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
}

// callerName returns the most telling name of a caller.
func callerName(c inspect.Caller) string {
	switch {
	case c.Person != "":
		return c.Person
	case c.Pod != "" && c.Namespace != "":
		return c.Namespace + "/" + c.Pod
	case c.Pod != "":
		return c.Pod
	case c.ServiceAccount != "":
		return c.Namespace + "/" + c.ServiceAccount
	}
	return c.IP
}

// statusOf returns what a list shows as the status of an exchange, its class, and its words.
func statusOf(e *inspect.Exchange) (text, class, words string) {
	switch {
	case e.Error != "":
		return "failed", "failed", "The exchange broke off"
	case e.Response == nil && !e.Done:
		return "open", "open", "There is no answer yet"
	case e.Response == nil && e.Raw:
		return "raw", "open", "Not HTTP"
	case e.Response == nil:
		return "none", "failed", "There was no answer"
	}
	status := e.Response.Status
	if status == 0 {
		return "raw", "open", "Not HTTP"
	}
	if code, message := e.GRPCStatus(); status == http.StatusOK && code > 0 {
		return grpcStatusOf(code, message)
	}
	class = "good"
	switch {
	case status >= 500:
		class = "failed"
	case status >= 400:
		class = "warning"
	case status < 200:
		class = "open"
	}
	return strconv.Itoa(status), class, http.StatusText(status)
}

// grpcCodes are the names of the statuses of gRPC.
var grpcCodes = []string{"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
	"ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
	"UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"}

// grpcStatusOf is statusOf for a call of gRPC that failed, whose HTTP status is 200.
func grpcStatusOf(code int, message string) (text, class, words string) {
	words, class = "unknown status", "warning"
	if code < len(grpcCodes) {
		words = grpcCodes[code]
	}
	switch words {
	case "UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS":
		class = "failed"
	}
	if message != "" {
		words += ": " + message
	}
	return "gRPC " + strconv.Itoa(code), class, words
}
