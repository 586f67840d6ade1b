// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/quickstart"
)

const quickstartHelp = `Try Fairlead on this machine: no cluster, no root, no configuration. The service, an agent and a
forwarder run in this process, as they do on three machines otherwise, and listen on the loopback
interface only. A call to the forwarder's port takes the way of a pod's call to http://hello.demo.

TARGET is the web server that answers: a PORT of this machine, HOST:PORT, or a URL without a path,
http:// or https://. Without one a page of the quick start answers. A target that is down may come
up later: callers get a 502 until then.

What is printed works by copy and paste: a curl command, and the addresses of the inspector and the
dashboard with its API key. The ports are 8088, 4040 and 8443, or other free ones. Keys and tokens
are made anew at each start, each with the rights that it needs.

Ctrl-C stops all and removes the data, unless --data-dir names a folder: that one stays, and the
next start with it continues with the account, the certificate authority and the endpoint.`

const quickstartExample = `  fairlead-server quickstart                          # a page of its own answers
  fairlead-server quickstart 3000                     # your web server on port 3000
  fairlead-server quickstart https://10.0.0.7:8443    # a web server with TLS on another machine
  fairlead-server quickstart --data-dir ./fairlead    # keep the data`

func newQuickstart(c console, at *dataLocation) *cobra.Command {
	var logLevel string
	cmd := &cobra.Command{
		Use:     "quickstart [TARGET]",
		Short:   "Try all of Fairlead in one process, without a cluster",
		Long:    quickstartHelp,
		Example: quickstartExample,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return cli.Usagef("`fairlead-server quickstart` takes one target, and got %q too; give one PORT or URL",
					args[1])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			o := quickstart.Options{Out: c.out, ForceStop: c.forceStop,
				Color: c.outTerminal && c.env("NO_COLOR") == "" && c.env("TERM") != "dumb"}
			if at.urlFlag != "" || at.urlFile != "" {
				return cli.Usagef("a quick start has its data in SQLite: leave out --database-url and " +
					"--database-url-file, and name a folder with --data-dir if it is to stay")
			}
			if cmd.Flags().Changed("data-dir") {
				o.DataDir = at.dataDir
			}
			if len(args) > 0 {
				o.Target = args[0]
			}
			if o.Logger, err = newLogger(c, "text", logLevel); err != nil {
				return err
			}
			signal.Ignore(syscall.SIGPIPE) // which a write gets when the reader of a pipe has ended
			ctx := cmd.Context()
			if !signal.Ignored(syscall.SIGHUP) { // which a closed terminal sends, and nohup ignores
				var stop context.CancelFunc
				ctx, stop = signal.NotifyContext(ctx, syscall.SIGHUP)
				defer stop()
			}
			return quickstart.Run(ctx, o)
		},
	}
	cmd.Flags().StringVar(&logLevel, "log-level", "warn",
		"least `LEVEL` of the parts' logs on standard error: debug, info, warn or error")
	return cmd
}
