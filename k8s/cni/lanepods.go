// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/niclane/niclane/internal/atomicfile"
)

// LanePods is where, beside the socket, the agent writes the UIDs of the node's pods
// that ask for a lane, one on a line. niclane-cni reads it when nobody answers: a
// pod that is named there is not let through without its lane. One that is not may
// have a lane all the same, because the agent may have ended before it saw the pod.
func LanePods(socket string) string { return filepath.Join(filepath.Dir(socket), "lane-pods") }

// OtherPods is where the agent writes those of the pods that can have no lane, which a
// pod can or not as long as there is it. niclane-cni asks nobody about them: these are
// most pods, and none of them waits for the agent. One that is not named there may have
// none all the same, as above.
func OtherPods(socket string) string { return filepath.Join(filepath.Dir(socket), OtherPodsName) }

// OtherPodsName is the last part of OtherPods.
const OtherPodsName = "other-pods"

// WriteLanePods replaces the file LanePods, if it says something else.
func WriteLanePods(socket string, uids []string) error { return write(LanePods(socket), uids) }

// WriteOtherPods replaces the file OtherPods, if it says something else.
func WriteOtherPods(socket string, uids []string) error { return write(OtherPods(socket), uids) }

// AsksForLane reports whether LanePods names a pod.
func AsksForLane(socket, uid string) bool { return named(LanePods(socket), uid) }

// HasNoLane reports whether OtherPods names a pod.
func HasNoLane(socket, uid string) bool { return named(OtherPods(socket), uid) }

func write(path string, uids []string) error {
	text := []byte(strings.Join(slices.Compact(slices.Sorted(slices.Values(uids))), "\n") + "\n")
	if now, err := os.ReadFile(path); err == nil && bytes.Equal(now, text) {
		return nil
	}
	return atomicfile.Write(path, text, 0o600)
}

func named(path, uid string) bool {
	b, err := os.ReadFile(path)
	return err == nil && uid != "" && slices.Contains(strings.Split(string(b), "\n"), uid)
}
