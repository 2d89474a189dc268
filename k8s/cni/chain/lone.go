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

// A runtime takes the first file by name in its directory of network configurations. This file may
// configure one plugin (.conf), so that no other plugin can be chained in it. Examples are Multus'
// file, which refers to the pod network, and the pod network's own file (OVN-Kubernetes).

// wrapper is the name of a list that niclane writes if the first file configures one plugin. The
// list has this plugin, and niclane-cni after it. Its name sorts before names that begin with a
// two-digit number, as files of pod networks do.
const wrapper = "0-niclane.conflist"

// A lone has the fields that niclane needs of a file that configures one plugin.
type lone struct {
	CNIVersion string `json:"cniVersion,omitempty"`
	Name       string `json:"name"`
	// ClusterNetwork and Delegates are fields of Multus' configuration. They say what the pod network
	// is: ClusterNetwork by a file's path or a network's name, the first delegate by its
	// configuration.
	ClusterNetwork string            `json:"clusterNetwork,omitempty"`
	Delegates      []json.RawMessage `json:"delegates,omitempty"`
}

// isLone reports, by its name, whether a file configures one plugin and not a list.
func isLone(name string) bool {
	ext := filepath.Ext(name)
	return ext == ".conf" || ext == ".json"
}

// A target is the file in which niclane-cni is chained, with its content before and after the
// change. Nil content means that the file does not exist.
type target struct {
	path string
	// like is the file whose permissions the target gets.
	like          string
	before, after []byte
}

// targetOf returns the file in which niclane-cni must be chained, with the new content that how
// returns for it.
func targetOf(dir string, how func([]byte) ([]byte, error)) (target, error) {
	path, err := First(dir)
	if err != nil {
		return target{}, err
	}
	if filepath.Base(path) == wrapper {
		if path, err = firstBut(dir, wrapper); errors.Is(err, ErrNoNetwork) || err == nil && !isLone(path) {
			before, rerr := os.ReadFile(filepath.Join(dir, wrapper))
			return target{path: filepath.Join(dir, wrapper), before: before}, rerr // the wrapped file is gone
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

// clusterNetwork returns the path of the list that Multus uses for the pod network. given is a path
// on the node, or a network's name. Of the path, only the file's name counts: it must be in dir.
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

// inDelegate edits the configuration of the pod network inside Multus' own file (the first
// delegate). It returns the new content of this file. If Multus writes its file again, Keep edits
// it again.
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

// inFront returns the wrapper for a file that configures one plugin.
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
	if !bytes.Equal(after, plain) { // without niclane-cni in it, the wrapper is not needed
		out.after = after
	}
	return out, nil
}

// list returns a list of one plugin. wraps is the name of the file from which the plugin comes, ""
// if it is not in a file of its own.
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
