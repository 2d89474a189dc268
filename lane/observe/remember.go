// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/privatedir"
	"github.com/niclane/niclane/lane/device"
)

// The capabilities of traffic control are probed in a network namespace, with a program that the
// verifier must check. This takes milliseconds. The answer is the same as long as the kernel, its
// modules and niclane are the same. So it is kept in a directory that only root can write. A
// wrong answer does no harm: everything that niclane writes to the kernel is read back, so the
// step would fail and be undone.

// rememberedFile is the name of the file in Options.Remember.
const rememberedFile = "probed.json"

// maxRemembered is the largest size of the file in bytes, much more than twenty findings need.
const maxRemembered = 1 << 16

// A probeCache has findings. For describes the conditions under which they are valid.
type probeCache struct {
	For          string              `json:"for"`
	Capabilities device.Capabilities `json:"capabilities"`
}

// holdsFor returns the conditions of the findings as text: the boot and the kernel, its modules
// as depmod(8) last listed them, the user namespace and the user, and this executable, which
// contains the programs.
func holdsFor(k device.Kernel) (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	names := []string{strings.TrimSpace(string(boot)), k.Release, k.Version, k.Arch, fmt.Sprint("user ", os.Geteuid())}
	namespace, err := os.Readlink("/proc/self/ns/user")
	if err != nil {
		return "", err
	}
	names = append(names, namespace)
	for _, path := range []string{"/proc/self/exe", "/lib/modules/" + k.Release + "/modules.dep"} {
		var st unix.Stat_t
		switch err := unix.Stat(path, &st); {
		case err == nil:
			names = append(names, fmt.Sprintf("%s %d:%d %d bytes, %d.%09d", path, st.Dev, st.Ino, st.Size, st.Mtim.Sec,
				st.Mtim.Nsec))
		case errors.Is(err, unix.ENOENT): // a kernel without modules
			names = append(names, path+" none")
		default:
			return "", fmt.Errorf("%s: %w", path, err)
		}
	}
	return strings.Join(names, "; "), nil
}

// remember writes the findings, but only if all are yes or no. The directory must exist.
func remember(dir, holds string, caps device.Capabilities) error {
	for _, f := range caps {
		if f.Answer == device.Unknown {
			return nil
		}
	}
	b, err := json.Marshal(probeCache{holds, caps})
	if err != nil {
		return err
	}
	d, err := privatedir.Open(dir)
	if err != nil {
		return err
	}
	defer unix.Close(d)
	// Each process writes its own file, and renames it when it is complete.
	temporary := fmt.Sprintf("%s.%d", rememberedFile, os.Getpid())
	fd, err := unix.Openat(d, temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), temporary)
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err == nil {
		err = unix.Renameat(d, temporary, d, rememberedFile)
	}
	if err != nil {
		return errors.Join(err, unix.Unlinkat(d, temporary, 0))
	}
	return nil
}

// recall returns the findings that remember wrote. It returns nil if there are none, or if the
// conditions are others.
func recall(dir, holds string) device.Capabilities {
	d, err := privatedir.Open(dir)
	if err != nil {
		return nil
	}
	defer unix.Close(d)
	fd, err := unix.Openat(d, rememberedFile, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), rememberedFile)
	defer f.Close()
	var r probeCache
	b, err := io.ReadAll(io.LimitReader(f, maxRemembered))
	if err != nil || json.Unmarshal(b, &r) != nil || r.For != holds {
		return nil
	}
	return r.Capabilities
}
