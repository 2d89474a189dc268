// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/niclane/niclane/lane/device"
)

// programs reads which BPF programs are attached to the device, except tc filters. Without
// CAP_BPF or CAP_SYS_ADMIN, their names are "".
func (o *observer) programs(d *device.Device, l iface) {
	for _, x := range l.xdp {
		d.Programs = append(d.Programs, device.Program{Attach: x.attach, ID: x.id, Name: programName(x.id)})
	}
	for _, a := range []struct {
		name   string
		attach ebpf.AttachType
	}{
		{device.AttachTCXIngress, ebpf.AttachTCXIngress},
		{device.AttachTCXEgress, ebpf.AttachTCXEgress},
	} {
		res, err := link.QueryPrograms(link.QueryOptions{Target: d.Index, Attach: a.attach})
		if err != nil {
			return // the kernel is older than 6.6, or this process may not ask
		}
		for _, p := range res.Programs {
			d.Programs = append(d.Programs,
				device.Program{Attach: a.name, ID: uint32(p.ID), Name: programName(uint32(p.ID))})
		}
	}
}

func programName(id uint32) string {
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		return ""
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return ""
	}
	return info.Name
}
