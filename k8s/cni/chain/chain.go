// SPDX-License-Identifier: Apache-2.0

// Package chain puts niclane-cni at the end of the list of CNI plugins that the node's pod network
// has written, and removes it again. It changes nothing else in the list. If the pod network writes
// the list again, Keep adds niclane-cni again.
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

// Type is the plugin's type in the list, which is the name of its program.
const Type = "niclane-cni"

// entry is the plugin's entry in the list. The capability bandwidth makes the runtime pass the
// pod's annotations kubernetes.io/ingress-bandwidth and egress-bandwidth to the plugin.
var entry = json.RawMessage(`{"type": "` + Type + `", "capabilities": {"bandwidth": true}}`)

// statusKey is a key of the entry. If it is true, the plugin's STATUS fails while the agent does
// not answer.
const statusKey = "statusOfAgent"

// ErrNoNetwork says that a node has no pod network yet.
var ErrNoNetwork = errors.New("no network configuration yet")

// First returns the path of the file that a runtime uses: the first by name of the configuration
// files in dir, as in containerd's go-cni and CRI-O's ocicni.
func First(dir string) (string, error) { return firstBut(dir, "") }

// firstBut does the same as First, but skips the file with the name but.
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

// Add returns the list with niclane-cni at its end, or the same list if niclane-cni is already
// there. statusOfAgent says whether niclane-cni's STATUS must fail while the agent does not answer.
func Add(list []byte, statusOfAgent bool) ([]byte, error) {
	return edit(list, func(plugins []json.RawMessage) []json.RawMessage {
		if n := len(plugins); n > 0 && typeOf(plugins[n-1]) == Type {
			return append(slices.Clone(plugins[:n-1]), withStatus(plugins[n-1], statusOfAgent))
		}
		return append(without(plugins), withStatus(entry, statusOfAgent))
	})
}

// withStatus returns the entry with statusKey (if ofAgent is true) or without it. It returns the
// same bytes if nothing has to change.
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
	if err != nil { // does not happen: the entry was decoded from JSON
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
