// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// openError is a sentence about an error of opening that unwraps to its cause.
type openError struct {
	msg   string
	cause error
}

func (e *openError) Error() string { return e.msg }
func (e *openError) Unwrap() error { return e.cause }

// explainPostgresError turns an error of opening, or of locking, into a sentence.
func explainPostgresError(name string, err error) error {
	what := "database " + name
	var pgErr *pgconn.PgError
	var connecting *pgconn.ConnectError
	switch explained := explainSchemaError(what, "choose another --database-url", err); {
	case explained != nil:
		return explained
	case errors.Is(err, errPooler):
		return fmt.Errorf("%s cannot be used: %w", what, errPooler)
	case errors.As(err, &pgErr) && (pgErr.Code == "42501" || pgErr.Code == "3F000"):
		return fmt.Errorf("%s cannot be used: %s; make its user the owner of the database, or of a schema in its "+
			"search_path", what, pgErr.Message)
	case errors.As(err, &pgErr) && errors.As(err, &connecting):
		return &openError{fmt.Sprintf("%s cannot be used: %s%s", what, pgErr.Message, loginRemedy(pgErr.Code)), err}
	case errors.As(err, &connecting):
		return &openError{fmt.Sprintf("%s cannot be reached: %s", what, connectCause(connecting)), err}
	}
	return fmt.Errorf("opening %s: %w", what, err)
}

// loginRemedy is what can be done when the server does not let us in.
func loginRemedy(state string) string {
	switch {
	case strings.HasPrefix(state, "28"):
		return "; give its password in the file of --database-url-file, in FAIRLEAD_DATABASE_URL or in the file of " +
			"PGPASSFILE, and see that its pg_hba.conf admits the user"
	case state == "3D000":
		return "; create it, or correct --database-url"
	case state == "57P03":
		return "; try again in a moment"
	case strings.HasPrefix(state, "53"):
		return "; it has no connections left, raise its max_connections"
	}
	return " (SQLSTATE " + state + ")"
}

// connectCause returns why connecting failed. The driver's own text repeats the address for every
// attempt.
func connectCause(err error) string {
	var dns *net.DNSError
	var network net.Error
	var unknown x509.UnknownAuthorityError
	var verify *tls.CertificateVerificationError
	switch {
	case errors.As(err, &unknown):
		return "its certificate is of an unknown authority; name the authority's file with sslrootcert=FILE in the URL"
	case errors.As(err, &verify):
		return "its certificate cannot be verified: " + verify.Err.Error()
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused; is PostgreSQL running there?"
	case errors.Is(err, fs.ErrNotExist):
		return "there is no socket; is PostgreSQL running, and is host the directory of its socket?"
	case errors.As(err, &dns) && dns.IsNotFound:
		return fmt.Sprintf("the name %s does not exist", dns.Name)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "no answer in time"
	case strings.Contains(err.Error(), "refused TLS"):
		return "it offers no TLS; turn it on there, or, on a network that you trust, give sslmode=disable in the URL"
	}
	return strings.Join(strings.Fields(errors.Unwrap(err).Error()), " ")
}
