// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// A netns is a network namespace other than that of this thread. path is a file that setns(2)
// accepts.
type netns struct {
	path string
	// of describes the namespace by its name or by a process in it.
	of string
}

// elsewhere looks for a device in other network namespaces. It skips namespaces that it cannot
// enter: they may be ending.
func elsewhere(was device.Link) (Present, error) {
	all, err := otherNetns()
	if err != nil {
		return Present{}, err
	}
	for _, ns := range all {
		if name := lookInto(ns.path, was); name != "" {
			return Present{Name: name, Netns: ns.of}, nil
		}
	}
	return Present{}, nil
}

// otherNetns returns all network namespaces that are mounted (ip-netns(8), container runtimes) or
// that a process is in, except this thread's.
func otherNetns() ([]netns, error) {
	type id struct{ dev, ino uint64 }
	var here unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &here); err != nil {
		return nil, fmt.Errorf("/proc/thread-self/ns/net: %w", err)
	}
	seen := map[id]bool{{here.Dev, here.Ino}: true}
	var out []netns
	add := func(path, of string) {
		var st unix.Stat_t
		if unix.Stat(path, &st) != nil || seen[id{st.Dev, st.Ino}] {
			return
		}
		seen[id{st.Dev, st.Ino}] = true
		out = append(out, netns{path, of})
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(mounts)) {
		// proc_pid_mountinfo(5): the root is the fourth field, the mount point the fifth.
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[3], "net:[") {
			add(f[4], "network namespace "+filepath.Base(f[4]))
		}
	}
	processes, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return nil, err
	}
	for _, path := range processes {
		pid := strings.Split(path, "/")[2]
		comm, err := os.ReadFile("/proc/" + pid + "/comm")
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		add(path, fmt.Sprintf("the network namespace of process %s (%s)", pid, strings.TrimSpace(string(comm))))
	}
	return out, nil
}

// lookInto returns the device's name in a namespace, "" if the device is not there.
func lookInto(path string, was device.Link) (name string) {
	onThrowAwayThread(func() {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return
		}
		defer unix.Close(fd)
		if unix.Setns(fd, unix.CLONE_NEWNET) != nil {
			return
		}
		f, err := OpenFinder()
		if err != nil {
			return
		}
		defer f.Close()
		links, err := f.Links()
		if err != nil {
			return
		}
		name = called(links, was)
	})
	return name
}
