// SPDX-License-Identifier: Apache-2.0

// Package devlink is a thin typed client of a card's devlink parameters that can be set
// while the card runs: device.DriverParam objects (linux/devlink.h;
// Documentation/networking/devlink/devlink-params.rst). It reads and writes numbers and
// flags, and chooses no value.
package devlink

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/genl"
	"github.com/niclane/niclane/lane/device"
)

// Family is the family's name.
const Family = "devlink"

// Commands and attributes of linux/devlink.h, and types of include/net/netlink.h.
const (
	cmdParamGet = 38
	cmdParamSet = 39

	attrBus        = 1
	attrDev        = 2
	attrParam      = 80
	attrParamName  = 81
	attrParamType  = 83
	attrValues     = 84
	attrValue      = 85
	attrValueData  = 86
	attrValueCmode = 87

	typeU8   = 1
	typeU16  = 2
	typeU32  = 3
	typeFlag = 6

	cmodeRuntime = 0
)

// A Conn talks to the kernel. It is not safe for concurrent use.
type Conn struct {
	*genl.Family
	handle func(dev string) (bus, name string, err error)
}

// Open makes a Conn. The Conn connects at its first use. If the kernel lacks the family, the
// first use returns fs.ErrNotExist.
func Open() *Conn { return &Conn{genl.Named(Family), handle} }

// handle returns the bus and the address by which devlink names a device's card. If the
// device has no card, the error is EOPNOTSUPP.
func handle(dev string) (bus, name string, err error) {
	card := "/sys/class/net/" + dev + "/device"
	at, err := os.Readlink(card)
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", fmt.Errorf("%s: %w: no card of its own", dev, unix.EOPNOTSUPP)
	}
	if err != nil {
		return "", "", err
	}
	on, err := os.Readlink(card + "/subsystem")
	return filepath.Base(on), filepath.Base(at), err
}

// A param is a parameter with its present runtime value.
type param struct {
	kind  uint8
	value string
}

// Params returns the parameters of a device's card that can be set while it runs. Values
// are numbers, "true" or "false". If the card has none, the error is EOPNOTSUPP.
func (c *Conn) Params(dev string) (map[string]string, error) {
	all, err := c.params(dev)
	out := map[string]string{}
	for name, p := range all {
		out[name] = p.value
	}
	return out, err
}

func (c *Conn) params(dev string) (map[string]param, error) {
	bus, name, err := c.handle(dev)
	if err != nil {
		return nil, err
	}
	msgs, err := c.Execute(cmdParamGet, netlink.Request|netlink.Dump, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: get devlink parameters: %w", dev, err)
	}
	all := map[string]param{}
	for _, m := range msgs {
		if err := decode(m.Data, bus, name, all); err != nil {
			return nil, fmt.Errorf("%s: get devlink parameters: %w", dev, err)
		}
	}
	return all, nil
}

// decode adds a message's parameter to all if the message is about the card.
func decode(b []byte, bus, name string, all map[string]param) error {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return err
	}
	ofBus, ofName, what := "", "", ""
	p := param{}
	known := false
	for ad.Next() {
		switch ad.Type() {
		case attrBus:
			ofBus = ad.String()
		case attrDev:
			ofName = ad.String()
		case attrParam:
			ad.Nested(func(ad *netlink.AttributeDecoder) error {
				for ad.Next() {
					switch ad.Type() {
					case attrParamName:
						what = ad.String()
					case attrParamType:
						p.kind = ad.Uint8()
					case attrValues:
						ad.Nested(func(ad *netlink.AttributeDecoder) error {
							for ad.Next() {
								if ad.Type() == attrValue {
									ad.Nested(func(ad *netlink.AttributeDecoder) error { return p.decode(ad, &known) })
								}
							}
							return ad.Err()
						})
					}
				}
				return ad.Err()
			})
		}
	}
	if err := ad.Err(); err != nil {
		return err
	}
	if ofBus == bus && ofName == name && known {
		all[what] = p
	}
	return nil
}

// decode reads one value of the parameter, and keeps it if its configuration mode is runtime. A
// flag without data is off. known becomes true if decode keeps a value.
func (p *param) decode(ad *netlink.AttributeDecoder, known *bool) error {
	value, runtime := "", false
	if p.kind == typeFlag {
		value = "false"
	}
	for ad.Next() {
		switch ad.Type() {
		case attrValueCmode:
			runtime = ad.Uint8() == cmodeRuntime
		case attrValueData:
			switch p.kind {
			case typeU8:
				value = strconv.Itoa(int(ad.Uint8()))
			case typeU16:
				value = strconv.Itoa(int(ad.Uint16()))
			case typeU32:
				value = strconv.FormatUint(uint64(ad.Uint32()), 10)
			case typeFlag:
				value = "true"
			}
		}
	}
	if runtime && value != "" {
		p.value, *known = value, true
	}
	return ad.Err()
}

// Read returns the present value of a device.DriverParam, or nil if the card has no such
// parameter.
func (c *Conn) Read(o device.Object) (device.Object, error) {
	d, ok := o.(device.DriverParam)
	if !ok {
		return nil, fmt.Errorf("object kind %q is not devlink's", o.Kind())
	}
	all, err := c.params(d.Dev)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	p, ok := all[d.Name]
	if !ok || err != nil {
		return nil, err
	}
	d.Value = p.value
	return d, nil
}

// Write sets a parameter. If next is nil, it sets 0 or false, the values that a new traffic class
// has: only the driver makes and removes parameters.
func (c *Conn) Write(old, next device.Object) error {
	d, ok := cmp.Or(next, old).(device.DriverParam)
	if !ok {
		return fmt.Errorf("object kind %q is not devlink's", cmp.Or(next, old).Kind())
	}
	all, err := c.params(d.Dev)
	if err != nil {
		return err
	}
	p, ok := all[d.Name]
	switch {
	case !ok && next == nil:
		return nil
	case !ok:
		return fmt.Errorf("%s: %w", d.Key(), unix.ENOENT)
	case next == nil:
		d = d.Default()
	}
	bus, name, err := c.handle(d.Dev)
	if err != nil {
		return err
	}
	value, err := encode(p.kind, d.Value)
	if err != nil {
		return fmt.Errorf("%s: %w", d.Key(), err)
	}
	_, err = c.Execute(cmdParamSet, netlink.Request|netlink.Acknowledge, func(ae *netlink.AttributeEncoder) {
		ae.String(attrBus, bus)
		ae.String(attrDev, name)
		ae.String(attrParamName, d.Name)
		ae.Uint8(attrParamType, p.kind)
		ae.Uint8(attrValueCmode, cmodeRuntime)
		value(ae)
	})
	if err != nil {
		return fmt.Errorf("set devlink parameter %s of %s to %s: %w", d.Name, d.Dev, d.Value, err)
	}
	return nil
}

func encode(kind uint8, value string) (func(*netlink.AttributeEncoder), error) {
	bits := map[uint8]int{typeU8: 8, typeU16: 16, typeU32: 32}[kind]
	if kind == typeFlag {
		on, err := strconv.ParseBool(value)
		return func(ae *netlink.AttributeEncoder) { ae.Flag(attrValueData, on) }, err
	}
	n, err := strconv.ParseUint(value, 10, max(bits, 1))
	return func(ae *netlink.AttributeEncoder) {
		switch kind {
		case typeU8:
			ae.Uint8(attrValueData, uint8(n))
		case typeU16:
			ae.Uint16(attrValueData, uint16(n))
		default:
			ae.Uint32(attrValueData, uint32(n))
		}
	}, err
}
