// SPDX-License-Identifier: Apache-2.0

// Package load loads BPF programs that stay in the kernel after this process,
// which are known by their names. It attaches nothing.
package load

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// tries is how often a collection is loaded for which the kernel has no memory.
const tries = 3

// Collection loads programs and maps. None is without its name: package ebpf asks
// the kernel once whether objects may have names, takes any error for a no, and
// remembers it. That is EAGAIN: another process can.
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
			err = fmt.Errorf("it would have no name, for the kernel had no answer when it was asked whether "+
				"programs may have one: %w", unix.EAGAIN)
		}
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("program %s: %w", name, err)
		}
	}
	return c, nil
}

// Transient reports whether an error is about what the kernel has left, not about
// what it was asked for: it says nothing about what the kernel can do.
func Transient(err error) bool {
	for _, e := range []unix.Errno{unix.ENOMEM, unix.ENOBUFS, unix.EINTR, unix.EAGAIN, unix.EIO, unix.EBADMSG,
		unix.ENOSPC, unix.EMFILE, unix.ENFILE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
