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
)

// Root is where the lab mounts the BPF file system of its cards.
const Root = "/run/niclane/bpf"

const (
	version     = 2
	maxQueues   = 128  // MAX_QUEUES; TableSize must be at least as large, for RSS over all of them
	maxContexts = 16   // MAX_CONTEXTS
	maxPatterns = 16   // MAX_PATTERNS
	maxRules    = 1024 // MAX_RULES
	// TableSize is the number of entries of an indirection table.
	TableSize = 128
)

// Info says how large a card is: how many queues, rules and contexts it has, and its rate.
type Info struct {
	// Queues is the number of receive queues and of transmit queues.
	Queues int
	// Rules is the capacity of the rule table; locations are 0 to Rules-1.
	Rules int
	// Contexts is the number of RSS contexts, with the default one.
	Contexts int
	// LinkRate is the rate of the link in each direction in bit/s.
	LinkRate uint64
}

// info corresponds to struct info in c/card.c.
type info struct {
	Version, Queues, Rules, Contexts uint32
	Rate                             uint64
}

// A Card is an open emulated card. Several processes may open the same card, each with a Card of
// its own. Writes take a lock, so only one process writes at a time.
type Card struct {
	dir  string
	info info
	maps map[string]*ebpf.Map
	fd   int // descriptor of dir, for the lock
}

// Dir returns the directory of the card whose port has address mac.
func Dir(mac net.HardwareAddr) string { return dir(Root, mac) }

func dir(root string, mac net.HardwareAddr) string {
	return filepath.Join(root, "card-"+strings.ReplaceAll(mac.String(), ":", ""))
}

// mapNames are the names of the maps. They are pinned under the same names.
func mapNames() []string {
	return []string{"card_contexts", "card_info", "card_locations", "card_patterns", "card_rules", "card_rx_queues",
		"card_tx_queues"}
}

// Open opens the card whose port has the address mac. If no card has that address, the error is
// fs.ErrNotExist.
func Open(mac net.HardwareAddr) (*Card, error) { return open(Dir(mac)) }

func open(dir string) (*Card, error) {
	if _, err := os.Stat(filepath.Join(dir, "card_info")); err != nil {
		return nil, err
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	c := &Card{dir: dir, maps: map[string]*ebpf.Map{}, fd: fd}
	if err := c.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", dir, err), c.Close())
	}
	return c, nil
}

// load opens the maps. It opens card_info first and checks the version in it, because another
// version may have other maps.
func (c *Card) load() error {
	if err := c.loadMap("card_info"); err != nil {
		return err
	}
	if err := c.maps["card_info"].Lookup(uint32(0), &c.info); err != nil {
		return err
	}
	if c.info.Version != version {
		return fmt.Errorf("made by another version of niclane (%d, this is %d)", c.info.Version, version)
	}
	for _, name := range mapNames() {
		if err := c.loadMap(name); err != nil {
			return err
		}
	}
	return nil
}

func (c *Card) loadMap(name string) error {
	if c.maps[name] != nil {
		return nil
	}
	m, err := ebpf.LoadPinnedMap(filepath.Join(c.dir, name), nil)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	c.maps[name] = m
	return nil
}

// Close closes the card.
func (c *Card) Close() error {
	errs := []error{unix.Close(c.fd)}
	for _, m := range c.maps {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// Info returns the size of the card.
func (c *Card) Info() Info {
	return Info{int(c.info.Queues), int(c.info.Rules), int(c.info.Contexts), c.info.Rate}
}

// lock waits until no other writer has the lock, and takes it. unlock releases it.
func (c *Card) lock() (unlock func(), err error) {
	for {
		err = unix.Flock(c.fd, unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, &fs.PathError{Op: "flock", Path: c.dir, Err: err}
	}
	return func() { _ = unix.Flock(c.fd, unix.LOCK_UN) }, nil // to release a held lock cannot fail
}

func (c *Card) errorf(format string, args ...any) error {
	return fmt.Errorf("emulated card %s: "+format, append([]any{filepath.Base(c.dir)}, args...)...)
}
