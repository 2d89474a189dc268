// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/device"
	"github.com/niclane/niclane/internal/extack"
	"github.com/niclane/niclane/internal/netdev"
)

// probeKernel fills the capabilities that belong to no device.
func (o *observer) probeKernel(ctx context.Context) error {
	caps := o.state.Capabilities
	o.probeFamilies(caps)
	o.probeNAPISet(caps)
	o.probeCgroups(caps)
	caps[device.CapIoUringNAPI] = probeIoUringNAPI()
	caps[device.CapTCX] = probeTCX()
	tc, err := inNewNetns(ctx, probeTC)
	if err != nil {
		why := fmt.Sprintf("no network namespace to try it in: %v", err)
		for _, c := range []device.Capability{
			device.CapMqprio, device.CapHTB, device.CapClsact, device.CapClsBPF, device.CapFlower, device.CapSkbedit,
		} {
			caps[c] = device.Finding{Answer: device.Unknown, Why: why}
		}
		return ctx.Err()
	}
	for c, f := range tc {
		caps[c] = f
	}
	return nil
}

// answer turns the outcome of a probe into a finding: no is only what the
// given errnos say.
func answer(err error, yes string, no ...error) device.Finding {
	if err == nil {
		return device.Finding{Answer: device.Yes, Why: yes}
	}
	f := device.Finding{Answer: device.Unknown, Why: err.Error()}
	for _, n := range no {
		if errors.Is(err, n) {
			f.Answer = device.No
		}
	}
	return f
}

func (o *observer) probeFamilies(caps device.Capabilities) {
	nl, err := genetlink.Dial(&netlink.Config{Strict: true})
	if err == nil {
		defer nl.Close()
	}
	for c, name := range map[device.Capability]string{
		device.CapNetShaper: "net-shaper", device.CapDevlink: "devlink",
	} {
		e := err
		if e == nil {
			_, e = nl.GetFamily(name)
		}
		caps[c] = answer(extack.Error(e), "netlink family "+name, os.ErrNotExist)
		if caps[c].Answer == device.No {
			caps[c] = device.Finding{Answer: device.No, Why: "no netlink family " + name}
		}
	}
}

// probeNAPISet reads from the kernel which attributes napi-set takes.
func (o *observer) probeNAPISet(caps device.Capabilities) {
	if o.noGenl != nil {
		for _, c := range []device.Capability{device.CapNetdevGenl, device.CapNAPISet, device.CapNAPIThread, device.CapNAPIBusy} {
			caps[c] = device.Finding{Answer: device.No, Why: o.noGenl.Error()}
		}
		return
	}
	caps[device.CapNetdevGenl] = device.Finding{Answer: device.Yes, Why: "netlink family " + netdev.Family}
	p, err := o.netdev.Conn.SetPolicy()
	caps[device.CapNAPISet] = answer(err, "napi-set is in the family's policy", os.ErrNotExist)
	if caps[device.CapNAPISet].Answer == device.No {
		caps[device.CapNAPISet] = no("netlink family %s has no napi-set (Linux 6.13)", netdev.Family)
	}
	if err != nil {
		caps[device.CapNAPIThread] = caps[device.CapNAPISet]
		caps[device.CapNAPIBusy] = caps[device.CapNAPISet]
		return
	}
	caps[device.CapNAPIThread] = device.Finding{Answer: device.No, Why: "napi-set takes no threaded (Linux 6.17)"}
	caps[device.CapNAPIBusy] = caps[device.CapNAPIThread]
	if p.Threaded {
		caps[device.CapNAPIThread] = device.Finding{Answer: device.Yes, Why: "napi-set takes threaded"}
		caps[device.CapNAPIBusy] = device.Finding{Answer: device.No, Why: fmt.Sprintf("napi-set takes threaded up to %d (busy-poll is 2, Linux 6.19)", p.MaxThreaded)}
	}
	if p.MaxThreaded >= uint64(netdev.ThreadedBusy) {
		caps[device.CapNAPIBusy] = device.Finding{Answer: device.Yes, Why: fmt.Sprintf("napi-set takes threaded up to %d", p.MaxThreaded)}
	}
}

func (o *observer) probeCgroups(caps device.Capabilities) {
	g := o.state.Cgroups
	known, err := os.ReadFile("/proc/cgroups")
	enabled := enabledControllers(string(known))
	controller := func(name string, v2 bool) device.Finding {
		switch {
		case g.V1[name] != "":
			return device.Finding{Answer: device.Yes, Why: "version 1 at " + g.V1[name]}
		case v2 && slices.Contains(g.V2Controllers, name):
			return device.Finding{Answer: device.Yes, Why: "version 2 at " + g.V2}
		case err == nil && !slices.Contains(enabled, name) && !v2:
			return device.Finding{Answer: device.No, Why: "no controller " + name + " in /proc/cgroups"}
		}
		return device.Finding{Answer: device.Unknown, Why: "no hierarchy with " + name + " is mounted here"}
	}
	caps[device.CapCgroupSet] = controller("cpuset", true)
	caps[device.CapNetPrio] = controller("net_prio", false)
}

// enabledControllers reads /proc/cgroups (cgroups(7)): name, hierarchy, number
// of groups, enabled.
func enabledControllers(s string) []string {
	var names []string
	for line := range strings.Lines(s) {
		if f := strings.Fields(line); len(f) == 4 && f[3] == "1" {
			names = append(names, f[0])
		}
	}
	return names
}

// probeTCX asks which TCX programs are on the loopback device. Kernels without
// TCX do not know the attach type (EINVAL).
func probeTCX() device.Finding {
	const loopback = 1
	_, err := link.QueryPrograms(link.QueryOptions{Target: loopback, Attach: ebpf.AttachTCXIngress})
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, ebpf.ErrNotSupported) {
		return device.Finding{Answer: device.Unknown, Why: err.Error()}
	}
	if err != nil {
		return device.Finding{Answer: device.No, Why: err.Error()}
	}
	return device.Finding{Answer: device.Yes, Why: "BPF_PROG_QUERY knows the attach type"}
}
