// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Host is one network namespace of one boot of a machine.
type Host struct {
	// BootID is /proc/sys/kernel/random/boot_id (random(4)).
	BootID string `json:"bootID"`
	// NetnsCookie is SO_NETNS_COOKIE (Linux 5.14), which is not used twice within a boot; 0 if the
	// kernel has none.
	NetnsCookie uint64 `json:"netnsCookie"`
	// NetnsInode is the inode of /proc/self/ns/net, as ip netns and lsns show
	// it.
	NetnsInode uint64 `json:"netnsInode"`
}

// Here returns the host of the calling thread: its boot and its network namespace.
func Here() (Host, error) {
	var h Host
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return h, err
	}
	h.BootID = strings.TrimSpace(string(id))
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return h, fmt.Errorf("/proc/thread-self/ns/net: %w", err)
	}
	h.NetnsInode = st.Ino
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return h, fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(fd)
	h.NetnsCookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil && !errors.Is(err, unix.ENOPROTOOPT) {
		return h, fmt.Errorf("SO_NETNS_COOKIE: %w", err)
	}
	return h, nil
}

// SameBoot reports whether h and o belong to the same boot.
func (h Host) SameBoot(o Host) bool { return h.BootID == o.BootID }

// SameNetns reports whether h and o are the same network namespace in the same boot.
func (h Host) SameNetns(o Host) bool {
	if !h.SameBoot(o) {
		return false
	}
	if h.NetnsCookie != 0 && o.NetnsCookie != 0 {
		return h.NetnsCookie == o.NetnsCookie
	}
	return h.NetnsInode == o.NetnsInode
}

// Self returns a Who for the calling process, and the present time.
func Self() (Who, time.Time) {
	return Who{
		UID:     os.Getuid(),
		Login:   os.Getenv("SUDO_USER"),
		PID:     os.Getpid(),
		Command: os.Args,
	}, time.Now().UTC().Round(time.Second)
}
