// SPDX-License-Identifier: Apache-2.0

package ethtool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// errNoSocket is the error of a client without a socket.
var errNoSocket = errors.New("no socket for ethtool ioctl")

// A card accepts ioctl requests.
type card interface {
	// ioctl passes buf to the kernel (SIOCETHTOOL). buf begins with the command. The kernel
	// changes it in place.
	ioctl(dev string, buf []byte) error
}

func (c *Client) ioctl(dev string, buf []byte) error { return c.card.ioctl(dev, buf) }

// A socket is a file descriptor for ioctl requests; -1 if there is none.
type socket int

func (s socket) ioctl(dev string, buf []byte) error {
	if s < 0 {
		return errNoSocket
	}
	if len(dev) >= unix.IFNAMSIZ {
		return unix.ENODEV
	}
	var ifr struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // struct ifreq is 40 bytes on 64-bit systems
	}
	copy(ifr.name[:], dev)
	ifr.data = unsafe.Pointer(&buf[0])
	var pin runtime.Pinner
	pin.Pin(&buf[0])
	defer pin.Unpin()
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&ifr)))
	if errno != 0 {
		return errno
	}
	return nil
}

// DriverInfo identifies a device's driver (ETHTOOL_GDRVINFO).
type DriverInfo struct {
	Driver   string
	Version  string
	Firmware string
	Bus      string // "0000:3b:00.0"; "" for software devices
}

// DriverInfo returns the driver's name and versions. Netlink has no such request.
func (c *Client) DriverInfo(dev string) (DriverInfo, error) {
	if c.fd < 0 {
		return DriverInfo{}, fmt.Errorf("get driver of %s: %w", dev, errNoSocket)
	}
	v, err := unix.IoctlGetEthtoolDrvinfo(c.fd, dev)
	if err != nil {
		return DriverInfo{}, fmt.Errorf("get driver of %s: %w", dev, err)
	}
	text := func(b []byte) string {
		if s := unix.ByteSliceToString(b); s != "N/A" {
			return s
		}
		return ""
	}
	return DriverInfo{text(v.Driver[:]), text(v.Version[:]), text(v.Fw_version[:]), text(v.Bus_info[:])}, nil
}

// Index returns the device's interface index.
func (c *Client) Index(dev string) (int, error) {
	ifr, err := unix.NewIfreq(dev)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", dev, unix.ENODEV)
	}
	if c.fd < 0 {
		return 0, errNoSocket
	}
	if err := unix.IoctlIfreq(c.fd, unix.SIOCGIFINDEX, ifr); err != nil {
		return 0, fmt.Errorf("%s: %w", dev, err)
	}
	return int(ifr.Uint32()), nil
}

// Layout of struct ethtool_per_queue_op (linux/ethtool.h): cmd, sub_command, a mask of 4096
// queues, then one struct of the sub-command for each queue.
const (
	perQueueMax    = 4096
	perQueueHeader = 8 + perQueueMax/8
)

// Layout of struct ethtool_coalesce: 23 words of 32 bits.
const (
	coalesceSize    = 23 * 4
	coalesceRxUsecs = 1 * 4
	coalesceTxUsecs = 5 * 4
	coalesceRxAdapt = 10 * 4
	coalesceTxAdapt = 11 * 4
)

// perQueueRequest returns an ETHTOOL_PERQUEUE request for one queue, with the sub-command sub.
func perQueueRequest(sub uint32, queue int) ([]byte, error) {
	if queue < 0 || queue >= perQueueMax {
		return nil, fmt.Errorf("queue %d: not from 0 to %d", queue, perQueueMax-1)
	}
	buf := make([]byte, perQueueHeader+coalesceSize)
	binary.NativeEndian.PutUint32(buf[0:], unix.ETHTOOL_PERQUEUE)
	binary.NativeEndian.PutUint32(buf[4:], sub)
	word := 8 + queue/32*4
	binary.NativeEndian.PutUint32(buf[word:], 1<<(queue%32))
	binary.NativeEndian.PutUint32(buf[perQueueHeader:], sub)
	return buf, nil
}

// QueueCoalesce returns the interrupt moderation of one queue
// (ETHTOOL_PERQUEUE).
func (c *Client) QueueCoalesce(dev string, queue int) (device.Coalesce, error) {
	buf, err := c.queueCoalesce(dev, queue)
	if err != nil {
		return device.Coalesce{}, fmt.Errorf("get coalescing of queue %d of %s: %w", queue, dev, err)
	}
	v := decodeIoctlCoalesce(buf[perQueueHeader:])
	v.Dev, v.Queue = dev, queue
	return v, nil
}

func (c *Client) queueCoalesce(dev string, queue int) ([]byte, error) {
	buf, err := perQueueRequest(unix.ETHTOOL_GCOALESCE, queue)
	if err != nil {
		return nil, err
	}
	return buf, c.ioctl(dev, buf)
}

func decodeIoctlCoalesce(b []byte) device.Coalesce {
	word := func(at int) uint32 { return binary.NativeEndian.Uint32(b[at:]) }
	return device.Coalesce{
		RxUsecs: int(word(coalesceRxUsecs)), TxUsecs: int(word(coalesceTxUsecs)),
		RxAdapt: word(coalesceRxAdapt) != 0, TxAdapt: word(coalesceTxAdapt) != 0,
	}
}

// SetQueueCoalesce changes the interrupt moderation of one queue. It keeps the parameters
// that device.Coalesce lacks.
func (c *Client) SetQueueCoalesce(v device.Coalesce) error {
	buf, err := c.queueCoalesce(v.Dev, v.Queue)
	if err == nil {
		b := buf[perQueueHeader:]
		put := func(at, value int) { binary.NativeEndian.PutUint32(b[at:], uint32(value)) }
		put(coalesceRxUsecs, v.RxUsecs)
		put(coalesceTxUsecs, v.TxUsecs)
		put(coalesceRxAdapt, number(v.RxAdapt))
		put(coalesceTxAdapt, number(v.TxAdapt))
		binary.NativeEndian.PutUint32(buf[4:], unix.ETHTOOL_SCOALESCE)
		put(0, unix.ETHTOOL_SCOALESCE)
		err = c.ioctl(v.Dev, buf)
	}
	if err != nil {
		return fmt.Errorf("set coalescing of queue %d of %s: %w", v.Queue, v.Dev, err)
	}
	return nil
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Driver returns the driver's name.
func (c *Client) Driver(dev string) (string, error) {
	i, err := c.DriverInfo(dev)
	return i.Driver, err
}
