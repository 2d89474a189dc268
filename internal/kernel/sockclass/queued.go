// SPDX-License-Identifier: Apache-2.0

package sockclass

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// maxFrom is MAX_FROM of queued.c.
const maxFrom = 8

// queued treats TCP sockets by the group of the socket, not by the group of a process. So it
// also finds connections that wait for accept(), for which no process has a descriptor yet. On a
// kernel without BTF or without tracing programs (CONFIG_BPF_EVENTS), it does nothing.
func (t *treatment) queued() error {
	err := t.iterate()
	if errors.Is(err, unix.EINVAL) {
		err = cmp.Or(features.HaveProgramType(ebpf.Tracing), err)
	}
	if errors.Is(err, ebpf.ErrNotSupported) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("niclane_queued: %w", err)
	}
	return nil
}

func (t *treatment) iterate() error {
	spec, err := loadQueued()
	if err != nil {
		return err
	}
	var from [maxFrom]uint32
	if n := copy(from[:], t.from); n < len(t.from) {
		return fmt.Errorf("%d priorities to exchange, at most %d are known", len(t.from), n)
	}
	for name, value := range map[string]any{"from": from, "froms": uint32(len(t.from)), "to": t.to} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("variable %s: %w", name, err)
		}
	}
	groups := spec.Maps["groups"]
	for treat, names := range [][]string{t.left, t.groups[:1]} {
		for _, name := range names {
			id, err := t.client.id(name)
			if ignoreGone(err) != nil {
				return err
			}
			if err == nil {
				groups.Contents = append(groups.Contents, ebpf.MapKV{Key: id, Value: uint32(treat)})
			}
		}
	}
	groups.MaxEntries = uint32(max(1, len(groups.Contents)))
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return err
	}
	defer coll.Close()
	it, err := link.AttachIter(link.IterOptions{Program: coll.Programs["niclane_queued"]})
	if err != nil {
		return err
	}
	defer it.Close()
	r, err := it.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(io.Discard, r)
	return err
}

// id returns the kernel's ID of a control group, which is the file handle of its directory.
func (c *Client) id(name string) (uint64, error) {
	h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, path.Join(c.v2, name), 0)
	if err != nil {
		return 0, fmt.Errorf("control group %s: %w", name, err)
	}
	if h.Size() != 8 {
		return 0, fmt.Errorf("control group %s: a file handle of %d bytes, want 8", name, h.Size())
	}
	return binary.NativeEndian.Uint64(h.Bytes()), nil
}
