// SPDX-License-Identifier: Apache-2.0

package emucard

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/tuple"
)

// Root is where the lab mounts the BPF file system of its cards.
const Root = "/run/niclane/bpf"

const (
	version     = 1
	maxQueues   = 64   // MAX_QUEUES
	maxContexts = 16   // MAX_CONTEXTS
	maxPatterns = 16   // MAX_PATTERNS
	maxRules    = 1024 // MAX_RULES
	// TableSize is the number of entries of an indirection table.
	TableSize = 128
)

// Info says what a card has.
type Info struct {
	// Queues is the number of receive queues and of transmit queues.
	Queues int
	// Rules is how many rules it can hold; locations are 0 to Rules-1.
	Rules int
	// Contexts is how many RSS contexts it has, the default one included.
	Contexts int
	// LinkRate is the rate of its link in each direction, bit/s.
	LinkRate uint64
}

// info is struct info.
type info struct {
	Version, Queues, Rules, Contexts uint32
	Rate                             uint64
}

// A Card is an open emulated card. Several processes may use one at once, each
// with a Card of its own: writers exclude each other.
type Card struct {
	dir  string
	info info
	maps map[string]*ebpf.Map
	// keys and targets are entries' buffers.
	keys    []tuple.Key
	targets []target
}

// Dir returns the directory of the card whose port has address mac.
func Dir(mac net.HardwareAddr) string { return dir(Root, mac) }

func dir(root string, mac net.HardwareAddr) string {
	return filepath.Join(root, "card-"+strings.ReplaceAll(mac.String(), ":", ""))
}

// mapNames are the names of the maps and of their pins.
func mapNames() []string {
	return []string{"card_contexts", "card_info", "card_patterns", "card_rules", "card_rx_queues", "card_tx_queues"}
}

// Open opens the card whose port has the address mac. The error is
// fs.ErrNotExist if that port is no emulated card.
func Open(mac net.HardwareAddr) (*Card, error) { return open(Dir(mac)) }

func open(dir string) (*Card, error) {
	if _, err := os.Stat(filepath.Join(dir, "card_info")); err != nil {
		return nil, err
	}
	c := &Card{dir: dir, maps: map[string]*ebpf.Map{}}
	for _, name := range mapNames() {
		m, err := ebpf.LoadPinnedMap(filepath.Join(dir, name), nil)
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
		}
		c.maps[name] = m
	}
	if err := c.maps["card_info"].Lookup(uint32(0), &c.info); err != nil {
		c.Close()
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	if c.info.Version != version {
		c.Close()
		return nil, fmt.Errorf("%s: made by another version of niclane (%d, this is %d)", dir, c.info.Version, version)
	}
	return c, nil
}

// Close closes the card.
func (c *Card) Close() error {
	var errs []error
	for _, m := range c.maps {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// Info returns what the card has.
func (c *Card) Info() Info {
	return Info{int(c.info.Queues), int(c.info.Rules), int(c.info.Contexts), c.info.Rate}
}

// lock excludes other writers until unlock is called.
func (c *Card) lock() (unlock func(), err error) {
	d, err := os.Open(c.dir)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(d.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		d.Close()
		return nil, &fs.PathError{Op: "flock", Path: c.dir, Err: err}
	}
	return func() { d.Close() }, nil
}

func (c *Card) errorf(format string, args ...any) error {
	return fmt.Errorf("emulated card %s: "+format, append([]any{filepath.Base(c.dir)}, args...)...)
}
