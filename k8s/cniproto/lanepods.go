// SPDX-License-Identifier: Apache-2.0

package cniproto

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// LanePods is where, beside the socket, the agent writes the UIDs of the node's pods
// that ask for a lane, one on a line. niclane-cni reads it when nobody answers: a
// pod that is named there is not let through without its lane. One that is not may
// have a lane all the same, because the agent may have ended before it saw the pod.
func LanePods(socket string) string { return filepath.Join(filepath.Dir(socket), "lane-pods") }

// WriteLanePods replaces the file, if it says something else.
func WriteLanePods(socket string, uids []string) error {
	text := []byte(strings.Join(slices.Compact(slices.Sorted(slices.Values(uids))), "\n") + "\n")
	path := LanePods(socket)
	if now, err := os.ReadFile(path); err == nil && bytes.Equal(now, text) {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".lane-pods-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// AsksForLane reports whether the file names a pod.
func AsksForLane(socket, uid string) bool {
	b, err := os.ReadFile(LanePods(socket))
	return err == nil && uid != "" && slices.Contains(strings.Split(string(b), "\n"), uid)
}
