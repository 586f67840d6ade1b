// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agentconfig

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"
)

// Save sets keys of the config file at path and leaves its other keys, their order and comments
// alone; an empty value removes its key. A missing file is made, in a directory only its owner may
// enter; the file is always only its owner's. The change is atomic: a crash leaves the old file or
// the new one. A file that could not be loaded is refused and left as it is.
func Save(path string, values map[string]string) error {
	f, err := readFile(path, false)
	if err != nil {
		return err
	}
	for _, key := range scalarKeys() {
		if v, ok := values[key]; ok {
			f.set(key, v)
		}
	}
	out := bytes.NewBuffer(f.leadingComments)
	if len(f.leadingComments) > 0 && !bytes.HasSuffix(f.leadingComments, []byte("\n")) {
		out.WriteByte('\n')
	}
	enc := yaml.NewEncoder(out)
	enc.SetIndent(2)
	f.mapping()
	if err := errors.Join(enc.Encode(f.doc), enc.Close()); err != nil {
		return fmt.Errorf("writing config file %q: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("making the config directory: %w", err)
	}
	if err := writeAtomic(path, out.Bytes()); err != nil {
		return fmt.Errorf("writing config file %q: %w", path, err)
	}
	return nil
}

// set changes one key in the document.
func (f *file) set(key, value string) {
	root := f.mapping()
	scalar := yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
	for i := 0; i < len(root.Content); i += 2 {
		if root.Content[i].Value != key {
			continue
		}
		if value == "" {
			root.Content = append(root.Content[:i:i], root.Content[i+2:]...)
			return
		}
		old := root.Content[i+1]
		scalar.LineComment, scalar.HeadComment, scalar.FootComment = old.LineComment, old.HeadComment, old.FootComment
		*old = scalar
		return
	}
	if value != "" {
		root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, &scalar)
	}
}

// mapping returns the document's mapping and makes it when the file was empty or held only
// comments.
func (f *file) mapping() *yaml.Node {
	f.doc = cmp.Or(f.doc, &yaml.Node{Kind: yaml.DocumentNode})
	if len(f.doc.Content) == 0 {
		f.doc.Content = []*yaml.Node{{Kind: yaml.MappingNode, Tag: "!!map"}}
	}
	root := f.doc.Content[0]
	if root.Kind != yaml.MappingNode {
		*root = yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", HeadComment: root.HeadComment,
			LineComment: root.LineComment,
			FootComment: root.FootComment}
	}
	return root
}

// writeAtomic replaces path, or the file that it links to, by one with mode 0600.
func writeAtomic(path string, data []byte) (err error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // CreateTemp makes it 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name())
		}
	}()
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
