// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Runtimes take the first file of a directory by name. That file can be one plugin's
// configuration (.conf), in which no plugin can be chained: Multus' file, which refers to the
// pod network, or the pod network's own (OVN-Kubernetes).

// wrapper is niclane's list in front of such a file, and contains that plugin. Its name sorts
// before names that begin with a two-digit number, as files of pod networks do.
const wrapper = "0-niclane.conflist"

// A lone has the needed fields of one plugin's configuration.
type lone struct {
	CNIVersion string `json:"cniVersion,omitempty"`
	Name       string `json:"name"`
	// ClusterNetwork and Delegates are Multus'. They give the pod network: by a file's path,
	// by a network's name, or as the first delegate's configuration.
	ClusterNetwork string            `json:"clusterNetwork,omitempty"`
	Delegates      []json.RawMessage `json:"delegates,omitempty"`
}

// isLone reports whether a file that runtimes read has one plugin's configuration.
func isLone(name string) bool {
	ext := filepath.Ext(name)
	return ext == ".conf" || ext == ".json"
}

// A target is a file in which niclane-cni is chained, with its content before and after. nil
// content means: no file.
type target struct {
	path string
	// like is the file whose permissions the target gets.
	like          string
	before, after []byte
}

// targetOf returns the file in which niclane-cni must be chained, and how's result for it.
func targetOf(dir string, how func([]byte) ([]byte, error)) (target, error) {
	path, err := First(dir)
	if err != nil {
		return target{}, err
	}
	if filepath.Base(path) == wrapper {
		if path, err = firstBut(dir, wrapper); errors.Is(err, ErrNoNetwork) || err == nil && !isLone(path) {
			before, rerr := os.ReadFile(filepath.Join(dir, wrapper))
			return target{path: filepath.Join(dir, wrapper), before: before}, rerr // its plugin's file is gone
		}
		if err != nil {
			return target{}, err
		}
	}
	if !isLone(path) {
		return within(path, how)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return target{}, err
	}
	var l lone
	if err := json.Unmarshal(text, &l); err != nil {
		return target{}, fmt.Errorf("%s: not a JSON object: %w", path, err)
	}
	switch {
	case len(l.Delegates) > 0:
		after, err := inDelegate(text, l, how)
		if err != nil {
			return target{}, fmt.Errorf("%s: delegates[0]: %w", path, err)
		}
		return target{path, path, text, after}, nil
	case l.ClusterNetwork != "":
		list, err := clusterNetwork(dir, l.ClusterNetwork)
		if err != nil {
			return target{}, fmt.Errorf("%s: clusterNetwork: %w; let the runtime report pods instead (NRI)", path, err)
		}
		return within(list, how)
	}
	return inFront(dir, path, text, l, how)
}

func within(path string, how func([]byte) ([]byte, error)) (target, error) {
	before, err := os.ReadFile(path)
	if err != nil {
		return target{}, err
	}
	after, err := how(before)
	if err != nil {
		return target{}, fmt.Errorf("%s: %w", path, err)
	}
	return target{path, path, before, after}, nil
}

// clusterNetwork returns the path of the list that Multus uses for the pod network. A given
// path is the node's; its file is looked for in dir.
func clusterNetwork(dir, given string) (string, error) {
	if strings.HasPrefix(given, "/") {
		path := filepath.Join(dir, filepath.Base(given))
		if filepath.Ext(path) != ".conflist" {
			return "", fmt.Errorf("%s is not a list (.conflist); niclane-cni can be chained only in a list", given)
		}
		_, err := os.Stat(path)
		return path, err
	}
	lists, err := filepath.Glob(filepath.Join(dir, "*.conflist"))
	if err != nil {
		return "", err
	}
	for _, path := range lists {
		text, err := os.ReadFile(path)
		var l lone
		if err == nil && json.Unmarshal(text, &l) == nil && l.Name == given {
			return path, nil
		}
	}
	return "", fmt.Errorf("no list in %s has the name %q", dir, given)
}

// inDelegate edits the pod network inside Multus' own file. Multus writes that file again
// when its source changes.
func inDelegate(text []byte, l lone, how func([]byte) ([]byte, error)) ([]byte, error) {
	first, network := l.Delegates[0], lone{}
	if err := json.Unmarshal(first, &network); err != nil {
		return nil, err
	}
	plain := first
	if !bytes.Contains(first, []byte(`"plugins"`)) {
		var err error
		if plain, err = list(network, first, ""); err != nil {
			return nil, err
		}
	}
	after, err := how(plain)
	if err != nil || bytes.Equal(after, plain) {
		return text, err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	l.Delegates[0] = after
	if all["delegates"], err = json.Marshal(l.Delegates); err != nil {
		return nil, err
	}
	out, err := json.MarshalIndent(all, "", "  ")
	return append(out, '\n'), err
}

// inFront makes the wrapper of one plugin's configuration.
func inFront(dir, path string, text []byte, l lone, how func([]byte) ([]byte, error)) (target, error) {
	out := target{path: filepath.Join(dir, wrapper), like: path}
	if filepath.Base(path) < wrapper {
		return out, fmt.Errorf("%s: this file configures one plugin, and no list can come before it: rename it to "+
			"10-..., or let the runtime report pods instead (NRI)", path)
	}
	before, err := os.ReadFile(out.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return out, err
	}
	if err == nil {
		out.before = before
	}
	plain, err := list(l, text, filepath.Base(path))
	if err != nil {
		return out, fmt.Errorf("%s: %w", path, err)
	}
	after, err := how(plain)
	if err != nil {
		return out, fmt.Errorf("%s: %w", path, err)
	}
	if !bytes.Equal(after, plain) { // the wrapper is only needed with niclane-cni in it
		out.after = after
	}
	return out, nil
}

// list returns a list with one plugin. wraps is the name of the plugin's file, "" if it has
// none.
func list(l lone, plugin []byte, wraps string) ([]byte, error) {
	if typeOf(plugin) == "" {
		return nil, errors.New("type is missing, want the plugin's name")
	}
	return json.Marshal(struct {
		CNIVersion string            `json:"cniVersion,omitempty"`
		Name       string            `json:"name"`
		Wraps      string            `json:"niclane.dev/wraps,omitempty"`
		Plugins    []json.RawMessage `json:"plugins"`
	}{l.CNIVersion, l.Name, wraps, []json.RawMessage{plugin}})
}
