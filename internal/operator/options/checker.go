// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package options has the options that manager, forwarder and exporter share, and collects what is
// wrong with a process's options. Values of flags come in; the processes get connections to the
// service, or one error that names every wrong flag, its value and what to give instead.
package options

import (
	"errors"
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// IDPattern matches ids of accounts and stores, and the empty string.
var IDPattern = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9_-]{0,127})?$`)

// Checker collects errors of options, each with the flag, its value and what to give instead.
type Checker struct{ fields []account.FieldError }

// Reject adds an error: the flag's value breaks the rule.
func (c *Checker) Reject(flag, value, rule string) {
	c.fields = append(c.fields, account.FieldError{Field: flag, Value: value, Rule: rule})
}

// AddError adds the fields of an *account.Error; nil adds nothing.
func (c *Checker) AddError(err error) {
	if e, ok := errors.AsType[*account.Error](err); ok {
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
