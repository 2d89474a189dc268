// SPDX-License-Identifier: Apache-2.0

// Package load loads BPF programs that stay in the kernel when this process ends. Later
// processes find them by their names. The package attaches nothing.
package load

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// tries is the maximum number of attempts to load a collection after a transient error.
const tries = 3

// Collection loads programs and maps. If a program would have no name, the error is EAGAIN.
// This happens because package ebpf asks the kernel only once whether objects can have names,
// and takes any error for a no. A new process asks again.
func Collection(spec *ebpf.CollectionSpec, opts ebpf.CollectionOptions) (c *ebpf.Collection, err error) {
	for range tries {
		if c, err = ebpf.NewCollectionWithOptions(spec, opts); !Transient(err) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	for name, p := range c.Programs {
		info, err := p.Info()
		if err == nil && info.Name == "" {
			err = fmt.Errorf("it would have no name, because the kernel did not answer whether programs may have "+
				"one: %w", unix.EAGAIN)
		}
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("program %s: %w", name, err)
		}
	}
	return c, nil
}

// Transient reports whether an error comes from a present lack of resources, not from the
// request. Such an error shows nothing about the kernel's capabilities.
func Transient(err error) bool {
	for _, e := range []unix.Errno{unix.ENOMEM, unix.ENOBUFS, unix.EINTR, unix.EAGAIN, unix.EIO, unix.EBADMSG,
		unix.ENOSPC, unix.EMFILE, unix.ENFILE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
