// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agentconfig

import (
	"errors"
	"fmt"
	"path/filepath"
)

// The environment variables of the fairlead command. An empty variable counts as not set.
const (
	EnvServerURL = "FAIRLEAD_SERVER_URL"
	EnvAuthtoken = "FAIRLEAD_AUTHTOKEN"
	EnvAPIKey    = "FAIRLEAD_API_KEY"
	EnvCAFile    = "FAIRLEAD_CA_FILE"
	EnvCASHA256  = "FAIRLEAD_CA_SHA256"
	EnvConfig    = "FAIRLEAD_CONFIG"
)

// Getenv looks up an environment variable; os.Getenv is one.
type Getenv func(name string) string

// Path returns the path of the config file: flag, else FAIRLEAD_CONFIG, else fairlead/config.yaml
// in the XDG configuration directory. explicit is true when the user named the file, which then
// must exist.
func Path(flag string, env Getenv) (path string, explicit bool, err error) {
	if flag != "" {
		return flag, true, nil
	}
	if p := env(EnvConfig); p != "" {
		return p, true, nil
	}
	dir, err := xdg(env, "XDG_CONFIG_HOME", ".config")
	if err != nil {
		return "", false, fmt.Errorf("finding the config file: %w; set %s or give --config", err, EnvConfig)
	}
	return filepath.Join(dir, "config.yaml"), false, nil
}

// StateDir returns the directory of the instance id: fairlead in the XDG state directory.
func StateDir(env Getenv) (string, error) {
	dir, err := xdg(env, "XDG_STATE_HOME", filepath.Join(".local", "state"))
	if err != nil {
		return "", fmt.Errorf("finding the state directory: %w", err)
	}
	return dir, nil
}

// xdg returns fairlead's directory under the one that the variable names, or under home. The XDG
// specification has relative values ignored.
func xdg(env Getenv, variable, underHome string) (string, error) {
	if dir := env(variable); filepath.IsAbs(dir) {
		return filepath.Join(dir, "fairlead"), nil
	}
	for _, name := range []string{"HOME", "USERPROFILE"} {
		if home := env(name); filepath.IsAbs(home) {
			return filepath.Join(home, underHome, "fairlead"), nil
		}
	}
	return "", errors.New("neither " + variable + " nor HOME is set to an absolute path")
}
