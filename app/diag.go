// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/nlsock"
)

// Constants from linux/sock_diag.h and linux/inet_diag.h.
const (
	sockDiagByFamily = 20
	diagRequestSize  = 56 // struct inet_diag_req_v2
	diagReplySize    = 72 // struct inet_diag_msg
	stateListen      = 10
)

// A diag asks socket diagnostics for listeners only. This is cheap, because the kernel does not
// look at connections.
type diag struct{ conn *netlink.Conn }

func openDiag() (*diag, error) {
	c, err := nlsock.Dial(unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, fmt.Errorf("sock_diag: %w", err)
	}
	return &diag{c}, nil
}

func (d *diag) close() error { return d.conn.Close() }

// listeners returns the socket cookies of the TCP listeners at ports, ascending.
func (d *diag) listeners(ports []uint16) ([]uint64, error) {
	var cookies []uint64
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		req := make([]byte, diagRequestSize)
		req[0], req[1] = family, unix.IPPROTO_TCP
		binary.NativeEndian.PutUint32(req[4:], 1<<stateListen)
		msgs, err := d.conn.Execute(netlink.Message{
			Header: netlink.Header{Type: sockDiagByFamily, Flags: netlink.Request | netlink.Dump}, Data: req,
		})
		if err != nil {
			return nil, fmt.Errorf("sock_diag: %w", err)
		}
		for _, m := range msgs {
			if len(m.Data) >= diagReplySize && slices.Contains(ports, binary.BigEndian.Uint16(m.Data[4:])) {
				lo, hi := binary.NativeEndian.Uint32(m.Data[44:]), binary.NativeEndian.Uint32(m.Data[48:])
				cookies = append(cookies, uint64(hi)<<32|uint64(lo))
			}
		}
	}
	slices.Sort(cookies)
	return cookies, nil
}
