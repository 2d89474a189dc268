// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"strings"
)

// shortestID is the length of the short IDs that container tools print.
const shortestID = 12

// container finds a container's control group by its ID, as runtimes name it:
// ID (docker and runc with cgroupfs, containerd), docker-ID.scope,
// libpod-ID.scope, cri-containerd-ID.scope, crio-ID.scope (with systemd). The
// groups that podman and CRI-O put beside or below it are not it.
func (a *attachment) container(id string) (string, error) {
	found, err := findDirs(a.tracking(), func(base string) bool { return namesContainer(base, id) })
	if err != nil {
		return "", err
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", fmt.Errorf("no control group of container %q below %s: its ID, or the first %d characters or more of it, are wanted", id, a.tracking(), shortestID)
	}
	return "", fmt.Errorf("container %q can be %s: give more of its ID", id, strings.Join(found, " or "))
}

func namesContainer(base, id string) bool {
	name := strings.TrimSuffix(base, ".scope")
	if name != base { // RUNTIME-ID.scope
		for _, runtime := range []string{"docker-", "libpod-", "cri-containerd-", "crio-", "nerdctl-", "runc-"} {
			if rest, ok := strings.CutPrefix(name, runtime); ok {
				return sameID(rest, id)
			}
		}
		return false
	}
	return sameID(strings.TrimPrefix(name, "libpod-"), id)
}

// sameID reports whether id is name, or enough of its beginning if name is one
// of the 64 hexadecimal digits that tools shorten.
func sameID(name, id string) bool {
	return name == id && id != "" || len(name) == 64 && len(id) >= shortestID && strings.HasPrefix(name, id)
}
