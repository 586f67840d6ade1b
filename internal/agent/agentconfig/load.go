// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agentconfig

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
)

// Flags are the settings given on the command line; "" means not given. There is no flag for the
// authtoken or the API key itself: process arguments are visible to every user of the machine.
type Flags struct {
	Config        string
	CreatesConfig bool // CreatesConfig is set when the command makes a config file that is not there.
	ServerURL     string
	AuthtokenFile string // a path, or "-" for standard input
	APIKeyFile    string
	CAFile        string
	CASHA256      string
}

// Value is a setting and where it came from, for messages.
type Value struct {
	Text   string
	Source string // e.g. "--server", "FAIRLEAD_SERVER_URL" or "server_url in /home/a/.config/fairlead/config.yaml"
}

// Settings are the resolved settings. A missing one has an empty Text.
type Settings struct {
	Path      string // the config file's path, whether or not it exists
	ServerURL Value
	CAFile    Value // at most one of CAFile and CASHA256
	CASHA256  Value
	StateDir  string   // what StateDir returns, "" where it fails
	Warnings  []string // sentences

	file          *file
	apiKey        Value
	authtoken     Value
	authtokenFile string // path of --authtoken-file, "" = none, or standard input
	mu            sync.Mutex
}

// Load resolves the settings: flags, then environment, then the config file. The two ways to name
// the trusted authority are one setting, so that a flag of the one kind replaces a line of the
// other kind. stdin is read only for AuthtokenFile "-". The error joins everything that is wrong
// (errors.Join); the Settings, where there are any, are what could be read.
func Load(flags Flags, env Getenv, stdin io.Reader) (*Settings, error) {
	path, explicit, err := Path(flags.Config, env)
	if err != nil && flags.isComplete(env) {
		path, err = "", nil // no home directory, but everything needed is given
	}
	if err != nil {
		return nil, err
	}
	f := newFile("")
	if path != "" {
		if f, err = readFile(path, explicit && !flags.CreatesConfig); f == nil {
			return nil, err
		}
	}
	s := &Settings{Path: path, file: f, ServerURL: firstSet(
		Value{flags.ServerURL, "--server"},
		Value{env(EnvServerURL), EnvServerURL},
		Value{f.values[KeyServerURL], f.source(KeyServerURL)})}
	s.StateDir, _ = StateDir(env)
	err = errors.Join(err, s.resolveTrust(flags, env, f), s.resolveToken(flags, env, f, stdin),
		s.resolveAPIKey(flags, env, f))
	if exposed := f.readableByOthers(); exposed != "" {
		s.Warnings = append(s.Warnings, fmt.Sprintf("others can read %s in %s; run: chmod 600 %[2]s", exposed, path))
	}
	return s, err
}

// isComplete reports whether the server and a credential are known without a config file.
func (f Flags) isComplete(env Getenv) bool {
	return f.ServerURL+env(EnvServerURL) != "" &&
		f.AuthtokenFile+env(EnvAuthtoken)+f.APIKeyFile+env(EnvAPIKey) != ""
}

func firstSet(values ...Value) Value {
	for _, v := range values {
		if v.Text != "" {
			return v
		}
	}
	return Value{}
}

// resolveTrust uses the highest level that has either of the two settings.
func (s *Settings) resolveTrust(flags Flags, env Getenv, f *file) error {
	caFile := f.values[KeyCAFile]
	if caFile != "" && !filepath.IsAbs(caFile) {
		caFile = filepath.Join(filepath.Dir(f.path), caFile)
	}
	levels := [][2]Value{
		{{flags.CAFile, "--ca-file"}, {flags.CASHA256, "--ca-sha256"}},
		{{env(EnvCAFile), EnvCAFile}, {env(EnvCASHA256), EnvCASHA256}},
		{{caFile, f.source(KeyCAFile)}, {f.values[KeyCASHA256], f.source(KeyCASHA256)}},
	}
	for _, l := range levels {
		if l[0].Text != "" && l[1].Text != "" {
			return fmt.Errorf("%s and %s exclude each other: give one of them", l[0].Source, l[1].Source)
		}
		if l[0].Text != "" || l[1].Text != "" {
			s.CAFile, s.CASHA256 = firstSet(l[0]), firstSet(l[1])
			return nil
		}
	}
	return nil
}
