// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/niclane/niclane/internal/atomicfile"
)

// LanePods returns the path of the file with the UIDs of the node's pods that ask for a lane, one a
// line. The agent writes it next to the socket. niclane-cni reads it if the agent does not answer:
// a pod in the file must not start without its lane. A pod that is not in the file may still have a
// lane, because the agent may have ended before it saw the pod.
func LanePods(socket string) string { return filepath.Join(filepath.Dir(socket), "lane-pods") }

// OtherPods returns the path of the file with the UIDs of pods that can never have a lane. The
// agent writes it. Most pods are in the file. niclane-cni does not ask the agent about them, so
// they start without waiting for it. A pod that is not in the file may also have no lane.
func OtherPods(socket string) string { return filepath.Join(filepath.Dir(socket), OtherPodsName) }

// OtherPodsName is the name of the file OtherPods, without its directory.
const OtherPodsName = "other-pods"

// WriteLanePods writes the file LanePods if its content changes.
func WriteLanePods(socket string, uids []string) error { return write(LanePods(socket), uids) }

// WriteOtherPods writes the file OtherPods if its content changes.
func WriteOtherPods(socket string, uids []string) error { return write(OtherPods(socket), uids) }

// RemovePods removes both files.
func RemovePods(socket string) error {
	var errs []error
	for _, path := range []string{LanePods(socket), OtherPods(socket)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// AsksForLane reports whether the file LanePods has this UID.
func AsksForLane(socket, uid string) bool { return named(LanePods(socket), uid) }

// HasNoLane reports whether the file OtherPods has this UID.
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
