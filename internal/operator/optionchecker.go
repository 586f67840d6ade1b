// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"errors"
	"net"
	"os"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

// optionChecker collects errors of options, each with the flag, its value and what to give instead.
type optionChecker struct{ fields []account.FieldError }

func (c *optionChecker) reject(flag, value, rule string) {
	c.fields = append(c.fields, account.FieldError{Field: flag, Value: value, Rule: rule})
}

// addError adds the fields of an *account.Error; nil adds nothing.
func (c *optionChecker) addError(err error) {
	var e *account.Error
	if errors.As(err, &e) {
		c.fields = append(c.fields, e.Fields...)
	}
}

func (c *optionChecker) err() error {
	if len(c.fields) == 0 {
		return nil
	}
	return account.InvalidAll(c.fields)
}

// release checks the flags that select an installation.
func (c *optionChecker) release(namespace, release string) {
	c.name("--namespace", namespace, validation.IsDNS1123Label)
	c.name("--release", release, validation.IsDNS1123Subdomain)
}

// addresses checks the flags for listen addresses.
func (c *optionChecker) addresses(metrics, health string) {
	c.listen("--metrics-addr", metrics)
	c.listen("--health-addr", health)
}

func (c *optionChecker) name(flag, value string, rules func(string) []string) {
	if errs := rules(value); value == "" || len(errs) > 0 {
		c.reject(flag, value, "give the name of a Kubernetes object: lower case letters, digits and '-'")
	}
}

func (c *optionChecker) label(flag, value string) {
	if value == "" || len(validation.IsValidLabelValue(value)) > 0 {
		c.reject(flag, value, "give the value of a label: at most 63 letters, digits, '-', '_' and '.'")
	}
}

// file checks that a credential's file can be read and is not empty.
func (c *optionChecker) file(flag, path string) {
	b, err := os.ReadFile(path)
	switch {
	case err != nil:
		c.reject(flag, path, "name a file that can be read: "+err.Error())
	case strings.TrimSpace(string(b)) == "":
		c.reject(flag, path, "the file is empty; put the credential into it")
	}
}

// ca checks that the certificates of the authorities can be read; empty means the system's.
func (c *optionChecker) ca(flag, path string) {
	if _, err := (trust.Options{CAFile: path}).ClientConfig(); err != nil {
		c.reject(flag, path, "name a PEM file with the certificates of authorities: "+err.Error())
	}
}

// listen checks a listen address; empty means none.
func (c *optionChecker) listen(flag, addr string) {
	if addr == "" {
		return
	}
	_, port, err := net.SplitHostPort(addr)
	if n, portErr := strconv.Atoi(port); err != nil || portErr != nil || n < 0 || n > 65535 {
		c.reject(flag, addr, "give an address to listen on as [HOST]:PORT, or nothing")
	}
}
