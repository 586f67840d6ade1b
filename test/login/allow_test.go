// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import "github.com/fairlead-dev/fairlead/internal/service"

func allowLoopback(o *service.Options) { o.LoginAllow = []string{"127.0.0.0/8"} }
