// SPDX-License-Identifier: Apache-2.0

package emucard

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/ethtool"
	"github.com/niclane/niclane/lane/device"
)

// A Client reads and writes device.RSSTable and device.Rule objects. If a device has an emulated
// card, the objects are the card's. Otherwise they are the device's own, and the Client uses
// ethtool. The Client works in the network namespace of the thread that called NewClient. It is not
// safe for concurrent use.
type Client struct {
	fd      int
	ethtool *ethtool.Client
	cards   map[string]openCard // by device
}

// An openCard is a card that the Client keeps open. The Client closes it when the card's directory
// has been replaced.
type openCard struct {
	card *Card
	dir  os.FileInfo
	mac  string
}

// NewClient returns a client that uses et. The caller closes et.
func NewClient(et *ethtool.Client) (*Client, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	return &Client{fd: fd, ethtool: et, cards: map[string]openCard{}}, nil
}

// Close closes the cards and the socket.
func (c *Client) Close() error {
	errs := []error{unix.Close(c.fd)}
	for _, o := range c.cards {
		errs = append(errs, o.card.Close())
	}
	c.cards = nil
	return errors.Join(errs...)
}

// card returns the emulated card behind a device, or nil if there is none.
func (c *Client) card(dev string) (*Card, error) {
	mac, err := c.mac(dev)
	if err != nil {
		return nil, err
	}
	dir, err := os.Stat(Dir(mac))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("emulated card of %s: %w", dev, err)
	}
	if o, ok := c.cards[dev]; ok {
		if o.mac == mac.String() && os.SameFile(o.dir, dir) {
			return o.card, nil
		}
		o.card.Close()
		delete(c.cards, dev)
	}
	card, err := Open(mac)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("emulated card of %s: %w", dev, err)
	}
	c.cards[dev] = openCard{card, dir, mac.String()}
	return card, nil
}

// mac returns a device's MAC address (SIOCGIFHWADDR). If there is no such device, the error is
// ENODEV.
func (c *Client) mac(dev string) (net.HardwareAddr, error) {
	var ifr struct {
		name   [unix.IFNAMSIZ]byte
		family uint16
		addr   [14]byte
		_      [8]byte
	}
	if len(dev) >= unix.IFNAMSIZ {
		return nil, fmt.Errorf("%s: %w", dev, unix.ENODEV)
	}
	copy(ifr.name[:], dev)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(c.fd), unix.SIOCGIFHWADDR, uintptr(unsafe.Pointer(&ifr)))
	if errno != 0 {
		return nil, fmt.Errorf("%s: %w", dev, errno)
	}
	return net.HardwareAddr(ifr.addr[:6]), nil
}

// Read returns the present value of the RSS table or rule that has the key of o, or nil if there is
// none.
func (c *Client) Read(o device.Object) (device.Object, error) {
	dev, err := deviceOf(o)
	if err != nil {
		return nil, err
	}
	card, err := c.card(dev)
	if errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if card == nil {
		return c.ethtool.Read(o)
	}
	return readCard(card, o)
}

// ReadMany returns what Read returns, for each object. It reads the rules of each device only once.
func (c *Client) ReadMany(objects []device.Object) ([]device.Object, error) {
	out := make([]device.Object, len(objects))
	rules := map[string]map[string]device.Rule{} // by device, then by key
	for i, o := range objects {
		r, ok := o.(device.Rule)
		if !ok {
			var err error
			if out[i], err = c.Read(o); err != nil {
				return nil, err
			}
			continue
		}
		if rules[r.Dev] == nil {
			all, err := c.rules(r.Dev)
			if err != nil {
				return nil, err
			}
			rules[r.Dev] = map[string]device.Rule{}
			for _, a := range all {
				rules[r.Dev][a.Key()] = a
			}
		}
		if a, ok := rules[r.Dev][r.Key()]; ok {
			out[i] = a
		}
	}
	return out, nil
}

// rules returns a device's rules. It returns none if the device does not exist or does not support
// rules.
func (c *Client) rules(dev string) ([]device.Rule, error) {
	s, err := c.Steering(dev)
	if errors.Is(err, unix.ENODEV) || ethtool.NotSupported(s.RulesErr) {
		return nil, nil
	}
	return s.Rules, errors.Join(err, s.RulesErr)
}

// Write changes an RSS table or rule from old to next. Here nil stands for an object that does not
// exist.
func (c *Client) Write(old, next device.Object) error {
	o := cmp.Or(next, old)
	dev, err := deviceOf(o)
	if err != nil {
		return err
	}
	card, err := c.card(dev)
	if err != nil {
		return err
	}
	if card == nil {
		return c.ethtool.Write(old, next)
	}
	write := writeRule
	if _, table := o.(device.RSSTable); table {
		write = writeTable
	}
	if err := write(card, old, next); err != nil {
		return fmt.Errorf("%s: %w", o.Key(), err)
	}
	return nil
}

func deviceOf(o device.Object) (dev string, err error) {
	switch o := o.(type) {
	case device.RSSTable:
		return o.Dev, nil
	case device.Rule:
		return o.Dev, nil
	}
	return "", fmt.Errorf("object kind %q is not a steering object", o.Kind())
}
