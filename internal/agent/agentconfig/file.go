// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agentconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

// The keys of the config file.
const (
	KeyServerURL = "server_url"
	KeyAuthtoken = "authtoken"
	KeyAPIKey    = "api_key"
	KeyCAFile    = "ca_file"
	KeyCASHA256  = "ca_sha256"
	KeyEndpoints = "endpoints"
	KeyTunnels   = "tunnels"
)

// scalarKeys are the keys with a text as value; the others have a list of endpoint specs.
func scalarKeys() []string {
	return []string{KeyServerURL, KeyAuthtoken, KeyAPIKey, KeyCAFile, KeyCASHA256}
}

func knownKeys() []string { return append(scalarKeys(), KeyEndpoints, KeyTunnels) }

const maxFile = 1 << 20

// file is a parsed config file.
type file struct {
	path            string
	doc             *yaml.Node        // for Save: keeps comments and order
	values          map[string]string // by key
	lists           map[string]*yaml.Node
	leadingComments []byte // for Save: what a file without any key holds, which are comments
	mode            fs.FileMode
}

// readFile reads and checks the config file. A file that does not exist is an empty one unless it
// must exist.
func readFile(path string, mustExist bool) (*file, error) {
	f := newFile(path)
	data, mode, err := readLimited(path)
	if errors.Is(err, fs.ErrNotExist) {
		if mustExist {
			return nil, fmt.Errorf("config file %q does not exist; create it, or leave out --config and %s", path,
				EnvConfig)
		}
		return f, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading config file: %w", err)
	}
	f.mode = mode
	if data, err = asUTF8(data); err != nil {
		return nil, fmt.Errorf("config file %q: %w", path, err)
	}
	return f.parse(data)
}

// asUTF8 returns text in UTF-8, which is what Save writes: some editors and shells of Windows write
// UTF-16, with the mark by which it is known.
func asUTF8(data []byte) ([]byte, error) {
	data, _, err := transform.Bytes(unicode.BOMOverride(transform.Nop), data)
	if err != nil {
		return nil, fmt.Errorf("decoding its text: %w", err)
	}
	return data, nil
}

func newFile(path string) *file {
	return &file{path: path, values: map[string]string{}, lists: map[string]*yaml.Node{}}
}

// readLimited reads a small regular file.
func readLimited(path string) ([]byte, fs.FileMode, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil {
		return nil, 0, err
	}
	if info.IsDir() {
		return nil, 0, fmt.Errorf("%q is a directory; name a file", path)
	}
	data, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return nil, 0, err
	}
	if len(data) > maxFile {
		return nil, 0, fmt.Errorf("%q is larger than %d KiB; it cannot be what you meant", path, maxFile>>10)
	}
	return data, info.Mode(), nil
}

// parse accepts one mapping of known keys, or an empty document. Beside an error that joins all
// problems it returns f with the valid keys, or nil when the document could not be read.
func (f *file) parse(data []byte) (*file, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		f.leadingComments = data
		return f, nil
	} else if err != nil {
		return nil, fmt.Errorf("config file %q is not valid YAML: %s", f.path,
			strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("config file %q holds more than one document; keep one", f.path)
	}
	f.doc = &doc
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return f, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, f.errorAt(root, "the file must be a list of lines like %q",
			KeyServerURL+": https://fairlead.example.com:8443")
	}
	var problems []error
	for i := 0; i < len(root.Content); i += 2 {
		problems = append(problems, f.addKey(root.Content[i], root.Content[i+1]))
	}
	return f, errors.Join(problems...)
}

func (f *file) addKey(key, value *yaml.Node) error {
	_, twice := f.values[key.Value]
	switch {
	case key.Kind != yaml.ScalarNode || !slices.Contains(knownKeys(), key.Value):
		return f.errorAt(key, "unknown key %q; known keys are %s", key.Value, strings.Join(knownKeys(), ", "))
	case twice || f.lists[key.Value] != nil:
		return f.errorAt(key, "key %q appears twice; remove one", key.Value)
	case key.Value == KeyEndpoints || key.Value == KeyTunnels:
		f.lists[key.Value] = value // validated by the commands that serve them
		return nil
	case value.Kind != yaml.ScalarNode:
		return f.errorAt(value, "the value of %q must be a text", key.Value)
	}
	f.values[key.Value] = value.Value
	if value.Tag == "!!null" {
		f.values[key.Value] = ""
	}
	return nil
}

func (f *file) errorAt(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("config file %q line %d: %s", f.path, n.Line, fmt.Sprintf(format, args...))
}

// readableByOthers returns the credentials in the file that other users may read, "" for none.
func (f *file) readableByOthers() string {
	var exposed []string
	for _, c := range [][2]string{{KeyAuthtoken, "the authtoken"}, {KeyAPIKey, "the API key"}} {
		if f.values[c[0]] != "" {
			exposed = append(exposed, c[1])
		}
	}
	if runtime.GOOS == "windows" || f.mode.Perm()&0o044 == 0 {
		return ""
	}
	return strings.Join(exposed, " and ")
}

// source names a key of the file for messages.
func (f *file) source(key string) string { return key + " in " + f.path }

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
