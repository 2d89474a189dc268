// SPDX-License-Identifier: Apache-2.0

// Package chain puts niclane-cni behind the plugins of a node's pod network, and removes it
// again. It changes nothing else in their configuration. The pod network may write its
// configuration again at any time; Keep then adds niclane-cni again.
package chain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Type of the plugin: the name of its program.
const Type = "niclane-cni"

// entry is the plugin's entry in the list. Its capability makes the runtime pass the
// annotations kubernetes.io/ingress-bandwidth and egress-bandwidth.
var entry = json.RawMessage(`{"type": "` + Type + `", "capabilities": {"bandwidth": true}}`)

// statusKey of the entry makes the plugin's STATUS fail while the agent does not answer.
const statusKey = "statusOfAgent"

// ErrNoNetwork says that a node has no pod network yet.
var ErrNoNetwork = errors.New("no network configuration yet")

// First returns the file that runtimes take: the first by name among those that they read, as
// in containerd's go-cni and CRI-O's ocicni.
func First(dir string) (string, error) { return firstBut(dir, "") }

// firstBut is First without the named file.
func firstBut(dir, but string) (string, error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("%s: %w", dir, ErrNoNetwork)
	}
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if e.Name() != but && (filepath.Ext(e.Name()) == ".conflist" || isLone(e.Name())) {
			return filepath.Join(dir, e.Name()), nil
		}
	}
	return "", fmt.Errorf("%s: %w", dir, ErrNoNetwork)
}

// Add returns the list with niclane-cni at its end, or the same list if it is there already.
// statusOfAgent says whether niclane-cni's STATUS depends on the agent.
func Add(list []byte, statusOfAgent bool) ([]byte, error) {
	return edit(list, func(plugins []json.RawMessage) []json.RawMessage {
		if n := len(plugins); n > 0 && typeOf(plugins[n-1]) == Type {
			return append(slices.Clone(plugins[:n-1]), withStatus(plugins[n-1], statusOfAgent))
		}
		return append(without(plugins), withStatus(entry, statusOfAgent))
	})
}

// withStatus returns the entry with statusKey set or removed, or the same entry if it already
// is as wanted.
func withStatus(entry json.RawMessage, ofAgent bool) json.RawMessage {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(entry, &keys); err != nil || ofAgent == (string(keys[statusKey]) == "true") {
		return entry
	}
	delete(keys, statusKey)
	if ofAgent {
		keys[statusKey] = json.RawMessage("true")
	}
	text, err := json.Marshal(keys)
	if err != nil { // does not happen: it was decoded before
		return entry
	}
	return text
}

// Remove returns the list without niclane-cni, or the same list if niclane-cni is not in it.
func Remove(list []byte) ([]byte, error) { return edit(list, without) }

func without(plugins []json.RawMessage) []json.RawMessage {
	return slices.DeleteFunc(slices.Clone(plugins), func(p json.RawMessage) bool { return typeOf(p) == Type })
}

func edit(list []byte, how func([]json.RawMessage) []json.RawMessage) ([]byte, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(list, &all); err != nil {
		return nil, fmt.Errorf("not a JSON object: %w", err)
	}
	var before []json.RawMessage
	if err := json.Unmarshal(all["plugins"], &before); err != nil || len(before) == 0 {
		return nil, errors.New("plugins: want a list of at least one plugin")
	}
	after := how(before)
	if len(after) == 0 {
		return nil, errors.New("plugins: found only niclane-cni, which gives pods no address")
	}
	if slices.EqualFunc(before, after, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }) {
		return list, nil
	}
	var err error
	if all["plugins"], err = json.Marshal(after); err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(all, "", "  ")
	return append(text, '\n'), err
}

func typeOf(plugin json.RawMessage) string {
	var p struct {
		Type string `json:"type"`
	}
	_ = json.Unmarshal(plugin, &p) // a value that is no object has no type
	return p.Type
}
