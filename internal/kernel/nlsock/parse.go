// SPDX-License-Identifier: Apache-2.0

package nlsock

import (
	"encoding/binary"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// header reads the header of the first message in b and checks that the message is complete.
func header(h *netlink.Header, b []byte) error {
	if len(b) < unix.NLMSG_HDRLEN {
		return fmt.Errorf("%d bytes for a netlink header: %w", len(b), unix.EBADMSG)
	}
	h.Length = binary.NativeEndian.Uint32(b)
	h.Type = netlink.HeaderType(binary.NativeEndian.Uint16(b[4:]))
	h.Flags = netlink.HeaderFlags(binary.NativeEndian.Uint16(b[6:]))
	h.Sequence = binary.NativeEndian.Uint32(b[8:])
	h.PID = binary.NativeEndian.Uint32(b[12:])
	if h.Length < unix.NLMSG_HDRLEN || uint64(h.Length) > uint64(len(b)) {
		return fmt.Errorf("netlink message of %d in %d bytes: %w", h.Length, len(b), unix.EBADMSG)
	}
	return nil
}
