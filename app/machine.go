// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/sched"
	"github.com/niclane/niclane/lane/device"
)

// A machine is a virtual machine. niclane identifies it by the tap or macvtap on the host to which
// its network card is connected.
type machine struct {
	pid  int // process that has the device open: QEMU or another
	link netlink.Link
}

// findMachine finds the process that has a tap or macvtap open, and so its virtual machine.
func findMachine(tap string) (*machine, error) {
	link, err := netlink.LinkByName(tap)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", tap, err)
	}
	var has func(pid, fd string) bool
	switch link.Type() {
	case (&netlink.Tuntap{}).Type():
		has = func(pid, fd string) bool { return holdsTap(pid, fd, tap) }
	case "macvtap", "ipvtap":
		node := "/dev/tap" + strconv.Itoa(link.Attrs().Index)
		has = func(pid, fd string) bool { return linkOf(pid, fd) == node }
	default:
		return nil, fmt.Errorf("%s is a %s device: want the tap or macvtap of a virtual machine", tap, link.Type())
	}
	fds, err := filepath.Glob("/proc/[0-9]*/fd/[0-9]*")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, path := range fds {
		f := strings.Split(path, "/")
		if pid, err := strconv.Atoi(f[2]); err == nil && !slices.Contains(pids, pid) && has(f[2], f[4]) {
			pids = append(pids, pid)
		}
	}
	switch len(pids) {
	case 0:
		return nil, fmt.Errorf("no process has %s open: its machine does not run", tap)
	case 1:
		return &machine{pid: pids[0], link: link}, nil
	}
	return nil, fmt.Errorf("processes %v have %s open: give that of the machine, with --pid", pids, tap)
}

func linkOf(pid, fd string) string {
	to, _ := os.Readlink("/proc/" + pid + "/fd/" + fd)
	return to
}

// holdsTap reports whether a process's descriptor is a queue of a tap. It reads the descriptor's
// fdinfo (tun_chr_show_fdinfo in drivers/net/tun.c).
func holdsTap(pid, fd, tap string) bool {
	if linkOf(pid, fd) != "/dev/net/tun" {
		return false
	}
	b, err := os.ReadFile("/proc/" + pid + "/fdinfo/" + fd)
	if err != nil {
		return false
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if name, ok := strings.CutPrefix(s.Text(), "iff:"); ok {
			return strings.TrimSpace(name) == tap
		}
	}
	return false
}

// managedMachine reports whether a control group, by its name, belongs to the manager of a virtual
// machine: to systemd (machine-qemu\x2d1\x2dNAME.scope) or to libvirt (qemu-1-NAME.libvirt-qemu).
// libvirt puts a machine's threads into groups below that group.
func managedMachine(base string) bool {
	return strings.HasPrefix(base, "machine-") && strings.HasSuffix(base, ".scope") ||
		strings.HasSuffix(base, ".libvirt-qemu")
}

// vhost returns the kernel threads that move a machine's packets. It is for Linux before 6.4, where
// they are children of kthreadd. Their names have the PID of the machine's process
// (vhost_dev_set_owner in drivers/vhost/vhost.c). From 6.4, they are threads of that process.
func vhost(pid int) ([]int, error) {
	name := fmt.Sprintf("vhost-%d", pid)
	tids, err := processes()
	if err != nil {
		return nil, err
	}
	var found []int
	for _, tid := range tids {
		is, err := sched.IsKernelThread(tid, name)
		if err != nil {
			return nil, err
		}
		if is {
			found = append(found, tid)
		}
	}
	return found, nil
}

// guest adds notes about a machine: addresses that the machine has but the lane lacks, and whether
// the machine has more processors than the lane.
func (a *attachment) guest(m *machine) error {
	if a.lane.ByGroup {
		return fmt.Errorf("lane %s tells packets apart by control group, but a machine's packets come from no "+
			"socket in a control group: choose a classifier by flow (force: classifier) and give the machine's "+
			"addresses",
			a.lane.Name)
	}
	if a.options.Listeners != nil {
		return fmt.Errorf("the machine's listeners belong to its own kernel: run niclane in the machine")
	}
	macs, addrs, err := neighbours(m.link)
	if err != nil {
		return fmt.Errorf("addresses behind %s: %w", m.link.Attrs().Name, err)
	}
	for _, addr := range addrs {
		if !a.lane.has(addr) {
			a.notef("the machine's address %s is in no addrs of lane %s: its packets are not the lane's until "+
				"%s lists it",
				addr, a.lane.Name, a.lane.Config)
		}
	}
	if len(addrs) == 0 {
		var list []string
		for _, mac := range macs {
			list = append(list, mac.String())
		}
		of := ""
		if len(list) > 0 {
			of = " of " + strings.Join(list, ", ")
		}
		a.notef("the host knows no address%s behind %s: the lane gets packets from and to the addrs in %s", of,
			m.link.Attrs().Name, a.lane.Config)
	}
	if cpus, own := vcpus(m.pid), a.record.CPUs; len(own) > 0 && len(cpus) > len(own) {
		a.notef("the machine's %d processors share processors %s of the host with the threads that move its packets",
			len(cpus), device.FormatCPUList(own))
	}
	return nil
}

// vcpus returns QEMU's threads that run the machine's processors. It finds them by names such as
// "CPU 0/KVM", which QEMU sets only with -name debug-threads=on. libvirt uses that option.
func vcpus(pid int) []int {
	var found []int
	for _, tid := range threads(pid) {
		if name, err := sched.Name(tid); err == nil && strings.HasPrefix(name, "CPU ") {
			found = append(found, tid)
		}
	}
	return found
}

// neighbours returns the addresses behind a device. macs are MAC addresses: those that the bridge
// has learnt at a tap, or the own address of a macvtap. addrs are the IP addresses that the host
// knows for these MAC addresses.
func neighbours(link netlink.Link) (macs []net.HardwareAddr, addrs []netip.Addr, err error) {
	index := link.Attrs().Index
	if link.Type() != (&netlink.Tuntap{}).Type() {
		macs = append(macs, link.Attrs().HardwareAddr)
	} else {
		learnt, err := netlink.NeighList(index, unix.AF_BRIDGE)
		if err != nil {
			return nil, nil, err
		}
		for _, n := range learnt {
			if n.State&netlink.NUD_PERMANENT == 0 && n.MasterIndex != 0 && !hasMAC(macs, n.HardwareAddr) {
				macs = append(macs, n.HardwareAddr)
			}
		}
	}
	all, err := netlink.NeighList(0, unix.AF_UNSPEC)
	if err != nil {
		return nil, nil, err
	}
	for _, n := range all {
		addr, ok := netip.AddrFromSlice(n.IP)
		if addr = addr.Unmap(); ok && addr.IsGlobalUnicast() && hasMAC(macs, n.HardwareAddr) &&
			!slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return macs, addrs, nil
}

func hasMAC(macs []net.HardwareAddr, mac net.HardwareAddr) bool {
	return slices.ContainsFunc(macs, func(m net.HardwareAddr) bool { return bytes.Equal(m, mac) })
}
