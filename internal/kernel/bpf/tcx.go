// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// TCXEgress is the parent of filters that are attached to the device itself (TCX, Linux
// 6.6). TCX runs before clsact, so foreign filters at clsact cannot end the classification
// first.
const TCXEgress = "tcx-egress"

// tcxProgram returns niclane's program on a device, or 0 if there is none. niclane never
// attaches more than one.
func (c *Client) tcxProgram(dev string) (id uint32, name string, err error) {
	index, err := c.tc.Index(dev)
	if err != nil {
		return 0, "", err
	}
	res, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: ebpf.AttachTCXEgress})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, ebpf.ErrNotSupported) {
		return 0, "", nil // before Linux 6.6
	}
	if err != nil {
		return 0, "", fmt.Errorf("%s: programs at TCX egress: %w", dev, err)
	}
	for _, p := range res.Programs {
		name, err := programName(uint32(p.ID))
		if err != nil {
			return 0, "", err
		}
		if name == EgressProgram {
			return uint32(p.ID), name, nil
		}
	}
	return 0, "", nil
}

// writeTCX attaches the classifier before all others, or detaches it. It uses
// BPF_PROG_ATTACH, not a link, so that the program stays when this process ends.
func (c *Client) writeTCX(next device.Object, f device.Filter) error {
	index, err := c.tc.Index(f.Dev)
	if err != nil {
		return err
	}
	if next == nil {
		id, _, err := c.tcxProgram(f.Dev)
		if err != nil || id == 0 {
			return err
		}
		p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
		if err != nil {
			return fmt.Errorf("%s: BPF program %d: %w", f.Key(), id, err)
		}
		defer p.Close()
		if err := link.RawDetachProgram(link.RawDetachProgramOptions{Target: index, Program: p,
			Attach: ebpf.AttachTCXEgress}); err != nil {
			return fmt.Errorf("%s: detach: %w", f.Key(), err)
		}
		return nil
	}
	l := c.load(variantOfFilter(f))
	defer l.close()
	if l.err != nil {
		return l.err
	}
	err = link.RawAttachProgram(link.RawAttachProgramOptions{
		Target: index, Program: l.Programs[f.Program], Attach: ebpf.AttachTCXEgress, Anchor: link.Head(),
	})
	if err != nil {
		return fmt.Errorf("%s: attach: %w", f.Key(), err)
	}
	return nil
}
