// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package flagwords owns the words for values that a flag cannot take. Errors of the flag library come in; what goes out to the three programs' usage errors
// says what to give instead, in place of the names of Go's functions.
package flagwords

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// Of words an error of parsing flags. Errors of other kinds stay as they are.
func Of(err error) string {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err.Error()
	}
	var rule string
	var number *strconv.NumError
	switch kind := invalid.GetFlag().Value.Type(); {
	case errors.As(err, &number) && errors.Is(number.Err, strconv.ErrRange):
		rule = "the number is too large, or less than it may be"
	case strings.HasPrefix(kind, "uint"):
		rule = "give a whole number of 0 or more"
	case strings.HasPrefix(kind, "int"):
		rule = "give a whole number"
	case strings.HasPrefix(kind, "float"):
		rule = "give a number, such as 0.5"
	case kind == "bool":
		rule = "give true or false"
	case kind == "duration":
		rule = "give a duration, such as 30s, 10m or 2h"
	default:
		return err.Error()
	}
	return fmt.Sprintf("--%s %q: %s", invalid.GetFlag().Name, invalid.GetValue(), rule)
}
