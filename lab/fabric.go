// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lab/emucard"
)

// addFabric makes the card and the switch, with their programs and maps.
func (b *builder) addFabric() error {
	if b.cfg.Card == CardNone {
		return b.addBridges()
	}
	if err := mountBPF(); err != nil {
		return err
	}
	arbiter, err := b.index(uplink)
	if err != nil {
		return err
	}
	if err := b.addCard(emucard.Config{
		MAC: b.cfg.MAC(SUT), Queues: b.cfg.Queues, Rules: b.cfg.Rules, Contexts: b.cfg.Contexts,
		LinkRate: b.cfg.LinkRate, Arbiter: arbiter, PacketCost: b.cfg.PacketCost, WakeupCost: b.cfg.WakeupCost,
		Delay: b.cfg.Delay,
	}); err != nil {
		return err
	}
	fabric, err := b.loadSwitch()
	if err != nil {
		return err
	}
	defer fabric.Close()
	for _, a := range []struct {
		host, dev string
		parent    uint32
		prog      *ebpf.Program
		name      string
	}{
		{Switch, portOf(Client), netlink.HANDLE_MIN_INGRESS, fabric.Programs["lab_switch"], "lab_switch"},
		{Switch, portOf(Noise), netlink.HANDLE_MIN_INGRESS, fabric.Programs["lab_switch"], "lab_switch"},
		{Switch, uplinkEnd, netlink.HANDLE_MIN_INGRESS, fabric.Programs["lab_switch"], "lab_switch"},
		{Switch, downlinkEnd, netlink.HANDLE_MIN_INGRESS, fabric.Programs["lab_deliver"], "lab_deliver"},
	} {
		if err := b.attach(a.host, a.dev, a.parent, a.prog, a.name); err != nil {
			return err
		}
	}
	return nil
}

// addCard makes the card behind the SUT's port.
func (b *builder) addCard(cfg emucard.Config) error {
	card, err := emucard.Create(cfg)
	if err != nil {
		return err
	}
	defer card.Close()
	return errors.Join(
		b.attach(SUT, Port, netlink.HANDLE_MIN_INGRESS, card.Driver, "card_driver"),
		b.attach(Switch, cardPort, netlink.HANDLE_MIN_EGRESS, card.RX, "card_rx"),
		b.attach(Switch, cardPort, netlink.HANDLE_MIN_INGRESS, card.TX, "card_tx"),
	)
}

// mountBPF mounts a BPF file system for the lab. The usual one is below /sys, and "ip netns exec"
// hides it, because it mounts another /sys.
func mountBPF() error {
	if err := os.MkdirAll(emucard.Root, 0o700); err != nil {
		return err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(emucard.Root, &fs); err != nil {
		return fmt.Errorf("%s: %w", emucard.Root, err)
	}
	if fs.Type == unix.BPF_FS_MAGIC {
		return nil
	}
	if err := unix.Mount("bpf", emucard.Root, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
		"mode=0700"); err != nil {
		return fmt.Errorf("mount BPF file system on %s: %w", emucard.Root, err)
	}
	return nil
}

// unmountBPF undoes mountBPF, unless another lab has a card.
func unmountBPF() error {
	cards, err := filepath.Glob(filepath.Join(emucard.Root, "card-*"))
	if err != nil || len(cards) > 0 {
		return err
	}
	if err := unix.Unmount(emucard.Root, 0); err != nil && !errors.Is(err, unix.EINVAL) &&
		!errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", emucard.Root, err)
	}
	if err := os.Remove(emucard.Root); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (b *builder) loadSwitch() (*ebpf.Collection, error) {
	spec, err := loadFabric()
	if err != nil {
		return nil, err
	}
	port, err := b.index(cardPort)
	if err != nil {
		return nil, err
	}
	if err := spec.Variables["card_port"].Set(uint32(port)); err != nil {
		return nil, err
	}
	var first uint64
	for _, dscp := range b.cfg.SwitchFirst {
		first |= 1 << dscp
	}
	if err := spec.Variables["first"].Set(first); err != nil {
		return nil, err
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("switch: %w", err)
	}
	for _, host := range HostNames() {
		dev := portOf(host)
		if host == SUT {
			dev = downlink
		}
		index, err := b.index(dev)
		if err == nil {
			var key [8]byte
			copy(key[:], b.cfg.MAC(host))
			err = coll.Maps["lab_stations"].Put(key, uint32(index))
		}
		if err != nil {
			coll.Close()
			return nil, fmt.Errorf("switch: %w", err)
		}
	}
	return coll, nil
}

func (b *builder) attach(host, dev string, parent uint32, prog *ebpf.Program, name string) error {
	return b.withLink(host, dev, func(h *netlink.Handle, l netlink.Link) error {
		index := l.Attrs().Index
		clsact := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
		}}
		if err := h.QdiscAdd(clsact); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("clsact: %w", err)
		}
		err := h.FilterAdd(&netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: parent, Handle: 1, Protocol: unix.ETH_P_ALL,
				Priority: 0xc000},
			Fd: prog.FD(), Name: name, DirectAction: true,
		})
		if err != nil {
			return fmt.Errorf("program %s: %w", name, err)
		}
		return nil
	})
}
