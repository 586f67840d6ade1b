// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package optioncheck validates the options of fairlead-operator's processes. Flags with their
// values come in, from the Options of internal/operator and internal/operator/exporter; one error leaves
// that names every wrong flag, its value and what to give instead.
package optioncheck

import (
	"errors"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/serviceaccounttoken"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

// Checker collects errors of options, each with the flag, its value and what to give instead.
type Checker struct{ fields []account.FieldError }

// Reject adds an error: the flag's value breaks the rule.
func (c *Checker) Reject(flag, value, rule string) {
	c.fields = append(c.fields, account.FieldError{Field: flag, Value: value, Rule: rule})
}

// AddError adds the fields of an *account.Error; nil adds nothing.
func (c *Checker) AddError(err error) {
	var e *account.Error
	if errors.As(err, &e) {
		c.fields = append(c.fields, e.Fields...)
	}
}

// Err returns all errors as one *account.Error, nil if there are none.
func (c *Checker) Err() error {
	if len(c.fields) == 0 {
		return nil
	}
	return account.InvalidAll(c.fields)
}

// Release checks the flags that select an installation.
func (c *Checker) Release(namespace, release string) {
	c.Name("--namespace", namespace, validation.IsDNS1123Label)
	c.Name("--release", release, validation.IsDNS1123Subdomain)
}

// Addresses checks the flags for listen addresses.
func (c *Checker) Addresses(metrics, health string) {
	c.Listen("--metrics-addr", metrics)
	c.Listen("--health-addr", health)
}

// Name checks the name of a Kubernetes object by the rules of its kind.
func (c *Checker) Name(flag, value string, rules func(string) []string) {
	if errs := rules(value); value == "" || len(errs) > 0 {
		c.Reject(flag, value, "give the name of a Kubernetes object: lower case letters, digits and '-'")
	}
}

// Label checks the value of a label.
func (c *Checker) Label(flag, value string) {
	if value == "" || len(validation.IsValidLabelValue(value)) > 0 {
		c.Reject(flag, value, "give the value of a label: at most 63 letters, digits, '-', '_' and '.'")
	}
}

// File checks that a credential's file can be read and is not empty.
func (c *Checker) File(flag, path string) {
	b, err := os.ReadFile(path)
	switch {
	case err != nil:
		c.Reject(flag, path, "name a file that can be read: "+err.Error())
	case strings.TrimSpace(string(b)) == "":
		c.Reject(flag, path, "the file is empty; put the credential into it")
	}
}

// ServiceAccountTokenFlag names the file with a ServiceAccount token, for all processes.
const ServiceAccountTokenFlag = "--service-account-token-file"

// Credential checks that there is one of a secret's file, of the given flag, and a file for a
// ServiceAccount token. The latter need not exist yet.
func (c *Checker) Credential(secretFlag, secretFile, tokenFile string) {
	switch {
	case tokenFile == "" && secretFile == "":
		c.Reject(secretFlag, "", "name a file that can be read, or give "+ServiceAccountTokenFlag)
	case tokenFile == "":
		c.File(secretFlag, secretFile)
	case secretFile != "":
		c.Reject(ServiceAccountTokenFlag, tokenFile, "give either it or "+secretFlag+", not both")
	default:
		if err := serviceaccounttoken.CheckFile(tokenFile); err != nil {
			c.Reject(ServiceAccountTokenFlag, tokenFile, err.Error())
		}
	}
}

// API checks how a process calls the account's API.
func (c *Checker) API(url, keyFile, tokenFile, caFile, versionHeader string) {
	_, err := account.ParseServerURL("--api-url", url)
	c.AddError(err)
	c.Credential("--api-key-file", keyFile, tokenFile)
	c.CA("--ca-file", caFile)
	if !httpguts.ValidHeaderFieldName(versionHeader) {
		c.Reject("--version-header", versionHeader, "give the name of an HTTP header, such as Service-Version")
	}
}

// EdgeAddress checks the address of the service's edge.
func (c *Checker) EdgeAddress(flag, addr string) {
	host, port, err := net.SplitHostPort(addr)
	if n, portErr := strconv.Atoi(port); err != nil || host == "" || portErr != nil || n < 1 || n > 65535 {
		c.Reject(flag, addr,
			"give the address of the edge as HOST:PORT; an IPv6 address stands in brackets, [::1]:443")
	}
}

// CA checks that the certificates of the authorities can be read; empty means the system's.
func (c *Checker) CA(flag, path string) {
	if _, err := (trust.Options{CAFile: path}).ClientConfig(); err != nil {
		c.Reject(flag, path, "name a PEM file with the certificates of authorities: "+err.Error())
	}
}

// Listen checks a listen address; empty means none.
func (c *Checker) Listen(flag, addr string) {
	if addr == "" {
		return
	}
	_, port, err := net.SplitHostPort(addr)
	if n, portErr := strconv.Atoi(port); err != nil || portErr != nil || n < 0 || n > 65535 {
		c.Reject(flag, addr, "give an address to listen on as [HOST]:PORT, or nothing")
	}
}
