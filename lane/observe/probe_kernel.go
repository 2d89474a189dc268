// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"github.com/mdlayher/genetlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/extack"
	"github.com/niclane/niclane/internal/kernel/netdev"
	"github.com/niclane/niclane/internal/kernel/nlsock"
	"github.com/niclane/niclane/lane/device"
)

// startTC starts the probes of traffic control, unless dir has a valid result. They take as long
// as reading the devices, mostly because of the verifier and of making a network namespace. So
// they run in parallel with the reading, which they do not affect.
func (o *observer) startTC(ctx context.Context, dir string) {
	o.probedTC = make(chan tcProbes, 1)
	holds := ""
	if dir != "" {
		var err error
		if holds, err = holdsFor(o.state.Kernel); err != nil {
			dir = "" // probe without keeping the result
		} else if caps := recall(dir, holds); caps != nil {
			o.probedTC <- tcProbes{caps: caps}
			return
		}
	}
	go func() {
		caps, err := inNewNetns(ctx, probeTC)
		if err == nil && dir != "" {
			// If the write fails, the next call probes again.
			_ = remember(dir, holds, caps)
		}
		o.probedTC <- tcProbes{caps, err}
	}()
}

// tcProbes is the result of probeTC, or the reason why there is none.
type tcProbes struct {
	caps device.Capabilities
	err  error
}

// probeKernel sets the capabilities of the kernel, which belong to no device. It needs the probes
// that startTC has started.
func (o *observer) probeKernel(ctx context.Context) error {
	caps := o.state.Capabilities
	o.probeFamilies(caps)
	o.probeNAPISet(caps)
	o.probeCgroups(caps)
	caps[device.CapIoUringNAPI] = probeIoUringNAPI()
	caps[device.CapTCX] = probeTCX()
	caps[device.CapCPUMap] = probeCPUMap()
	tc := <-o.probedTC
	if tc.err != nil {
		for _, c := range ofTC {
			caps[c] = unanswered(fmt.Errorf("no network namespace to try it in: %w", tc.err))
		}
		return ctx.Err()
	}
	maps.Copy(caps, tc.caps)
	return nil
}

// unanswered returns the finding of a probe that has no answer. An error is transient if the next
// probe may have an answer. EIO, EAGAIN and ENOSPC are not: drivers return EIO and EAGAIN for
// permanent states, and ENOSPC means that the user's limit of namespaces is reached.
func unanswered(err error) device.Finding {
	f := device.Finding{Answer: device.Unknown, Why: err.Error()}
	for _, e := range []unix.Errno{unix.ENOMEM, unix.ENOBUFS, unix.EINTR, unix.EMFILE, unix.ENFILE} {
		f.Transient = f.Transient || errors.Is(err, e)
	}
	return f
}

// doubt returns an error if a capability is unknown for a transient reason. If the probe had an
// answer, the plan could be another one.
func doubt(where string, caps device.Capabilities) error {
	for _, c := range slices.Sorted(maps.Keys(caps)) {
		if caps[c].Transient {
			return fmt.Errorf("%scould not tell whether there is %s: %s: another try may have an answer: %w", where,
				c, caps[c].Why, unix.EAGAIN)
		}
	}
	return nil
}

// answer returns the finding for the result of a probe. The answer is "no" only if err is in the
// list no.
func answer(err error, yes string, no ...error) device.Finding {
	if err == nil {
		return device.Finding{Answer: device.Yes, Why: yes}
	}
	f := unanswered(err)
	for _, n := range no {
		if errors.Is(err, n) {
			f.Answer = device.No
		}
	}
	return f
}

func (o *observer) probeFamilies(caps device.Capabilities) {
	var nl *genetlink.Conn
	c, err := nlsock.Dial(unix.NETLINK_GENERIC)
	if err == nil {
		nl = genetlink.NewConn(c)
		defer nl.Close()
	}
	for capability, name := range map[device.Capability]string{
		device.CapNetShaper: "net-shaper", device.CapDevlink: "devlink",
	} {
		e := err
		if e == nil {
			_, e = nl.GetFamily(name)
		}
		caps[capability] = answer(extack.Error(e), "netlink family "+name, os.ErrNotExist)
		if caps[capability].Answer == device.No {
			caps[capability] = no("no netlink family %s", name)
		}
	}
}

// probeNAPISet asks the kernel which attributes napi-set accepts.
func (o *observer) probeNAPISet(caps device.Capabilities) {
	if o.noGenl != nil {
		for _, c := range []device.Capability{device.CapNetdevGenl, device.CapNAPISet, device.CapNAPIThread,
			device.CapNAPIBusy} {
			caps[c] = no("%v", o.noGenl)
		}
		return
	}
	caps[device.CapNetdevGenl] = yes("netlink family %s", netdev.Family)
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
	caps[device.CapNAPIThread] = no("napi-set takes no threaded (Linux 6.17)")
	caps[device.CapNAPIBusy] = caps[device.CapNAPIThread]
	if p.Threaded {
		caps[device.CapNAPIThread] = yes("napi-set takes threaded")
		caps[device.CapNAPIBusy] = no("napi-set takes threaded up to %d (busy-poll is 2, Linux 6.19)", p.MaxThreaded)
	}
	if p.MaxThreaded >= uint64(netdev.ThreadedBusy) {
		caps[device.CapNAPIBusy] = yes("napi-set takes threaded up to %d", p.MaxThreaded)
	}
}

func (o *observer) probeCgroups(caps device.Capabilities) {
	g := o.state.Cgroups
	known, err := os.ReadFile("/proc/cgroups")
	enabled := enabledControllers(string(known))
	controller := func(name string, v2 bool) device.Finding {
		switch {
		case g.V1[name] != "":
			return yes("version 1 at %s", g.V1[name])
		case v2 && slices.Contains(g.V2Controllers, name):
			return yes("version 2 at %s", g.V2)
		case err == nil && !slices.Contains(enabled, name) && !v2:
			return no("no controller %s in /proc/cgroups", name)
		}
		return unknown("no hierarchy with %s is mounted here", name)
	}
	caps[device.CapCgroupSet] = controller("cpuset", true)
	caps[device.CapNetPrio] = controller("net_prio", false)
	caps[device.CapSockops] = unknown("no unified hierarchy (cgroup v2) is mounted here")
	if g.V2 != "" {
		err := features.HaveProgramType(ebpf.SockOps)
		if err == nil {
			err = features.HaveProgramType(ebpf.CGroupSock)
		}
		caps[device.CapSockops] = answer(err, "cgroup v2 at "+g.V2+", and its program types", ebpf.ErrNotSupported)
	}
}

// enabledControllers returns the enabled controllers in /proc/cgroups (cgroups(7)). Each line has
// name, hierarchy, number of groups, and enabled.
func enabledControllers(s string) []string {
	var names []string
	for line := range strings.Lines(s) {
		if f := strings.Fields(line); len(f) == 4 && f[3] == "1" {
			names = append(names, f[0])
		}
	}
	return names
}

// probeCPUMap tests whether the kernel has XDP programs and cpumaps.
func probeCPUMap() device.Finding {
	err := features.HaveProgramType(ebpf.XDP)
	if err == nil {
		err = features.HaveMapType(ebpf.CPUMap)
	}
	return answer(err, "XDP programs and cpumaps can be made", ebpf.ErrNotSupported)
}

// probeTCX asks for the TCX programs on the loopback device. A kernel without TCX does not know
// this attach type (EINVAL).
func probeTCX() device.Finding {
	const loopback = 1
	_, err := link.QueryPrograms(link.QueryOptions{Target: loopback, Attach: ebpf.AttachTCXIngress})
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, ebpf.ErrNotSupported) {
		return unanswered(err)
	}
	if err != nil {
		return no("%v", err)
	}
	return yes("BPF_PROG_QUERY knows the attach type")
}
