// SPDX-License-Identifier: Apache-2.0

package emucard

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"unsafe"

	"github.com/cilium/ebpf"
)

// Config describes a card that Create makes.
type Config struct {
	// MAC is the address of the SUT's port.
	MAC net.HardwareAddr
	// Queues is the number of queues, 1 to 128.
	Queues int
	// Rules (1 to 1024) and Contexts (1 to 16) are the largest numbers that the card can hold.
	Rules, Contexts int
	// LinkRate is the rate of the link in bit/s. The card only reports it; it limits nothing.
	LinkRate uint64
	// Arbiter is the index of the device with the transmit arbiter. The arbiter is an HTB with handle
	// 1:, and has class 1:q+1 for transmit queue q. If Arbiter is 0, the card does not send packets to
	// that device, so the caller must.
	Arbiter int
	// PacketCost and WakeupCost are a model of processors, in ns. Each receive queue has one. It takes
	// PacketCost for a packet, and WakeupCost before the first one if it slept. If one of them is not 0,
	// the wire side of the port needs fq, and packets are late by Delay, the link's.
	PacketCost, WakeupCost, Delay int64
}

// Programs are a card's programs. RX belongs at clsact egress of the wire side of the port, TX at
// clsact ingress of the wire side, and Driver at clsact ingress of the port itself. They may be
// closed after they are attached.
type Programs struct {
	RX, TX, Driver *ebpf.Program
}

// Close closes the programs.
func (p *Programs) Close() error { return errors.Join(p.RX.Close(), p.TX.Close(), p.Driver.Close()) }

// Create makes a card: it loads the programs and pins the maps below Root. Root must be on a BPF
// file system. If Create fails, it leaves nothing behind.
func Create(cfg Config) (*Programs, error) { return create(Root, cfg) }

func create(root string, cfg Config) (_ *Programs, err error) {
	for _, x := range []struct {
		what     string
		n, limit int
	}{{"queues", cfg.Queues, maxQueues}, {"rules", cfg.Rules, maxRules}, {"contexts", cfg.Contexts, maxContexts}} {
		if x.n < 1 || x.n > x.limit {
			return nil, fmt.Errorf("emulated card: %s: %d, want 1 to %d", x.what, x.n, x.limit)
		}
	}
	coll, err := load(cfg)
	if err != nil {
		return nil, err
	}
	defer coll.Close()

	dir := dir(root, cfg.MAC)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, Remove(dir))
		}
	}()
	i := info{version, uint32(cfg.Queues), uint32(cfg.Rules), uint32(cfg.Contexts), cfg.LinkRate}
	if err := coll.Maps["card_info"].Put(uint32(0), i); err != nil {
		return nil, err
	}
	if err := coll.Maps["card_contexts"].Put(uint32(0), defaultContext(cfg.Queues)); err != nil {
		return nil, err
	}
	for _, name := range mapNames() {
		if err := coll.Maps[name].Pin(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	return &Programs{
		RX: coll.DetachProgram("card_rx"), TX: coll.DetachProgram("card_tx"), Driver: coll.DetachProgram("card_driver"),
	}, nil
}

// Transmit loads only the transmit side of a card, for a port without steering: this gives the port
// rings and a link. The caller closes the program.
func Transmit(cfg Config) (*ebpf.Program, error) {
	coll, err := load(cfg)
	if err != nil {
		return nil, err
	}
	defer coll.Close()
	return coll.DetachProgram("card_tx"), nil
}

func load(cfg Config) (*ebpf.Collection, error) {
	spec, err := loadCard()
	if err != nil {
		return nil, err
	}
	// Only this package uses this map. The programs need no map of locations, because each rule
	// contains its location.
	spec.Maps["card_locations"] = &ebpf.MapSpec{
		Name: "card_locations", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(unsafe.Sizeof(locations{})),
		MaxEntries: 1,
	}
	table := toeplitzTable()
	for name, value := range map[string]any{"toeplitz": table, "arbiter": uint32(cfg.Arbiter),
		"queues": uint32(cfg.Queues), "packet_cost": uint64(cfg.PacketCost), "wakeup_cost": uint64(cfg.WakeupCost),
		"link_delay": uint64(cfg.Delay)} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("emulated card: variable %s: %w", name, err)
		}
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("emulated card: %w", err)
	}
	return coll, nil
}

// Remove removes the state of the card in dir. If dir does not exist, this is no error.
func Remove(dir string) error { return os.RemoveAll(dir) }
