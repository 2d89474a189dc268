// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/vethtest"
)

// packets opens a packet socket on the veth's other end. It returns the socket and a frame to send.
func packets(t *testing.T) (fd int, frame []byte) {
	link := vethtest.Interface(t, vethtest.Peer)
	const experimental = 0xb588 // EtherType 0x88b5, for experiments (IEEE 802), in network byte order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: experimental, Ifindex: link.Index})
	}
	if err != nil {
		t.Fatal(err)
	}
	frame = make([]byte, 60)
	copy(frame, "\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x01\x88\xb5")
	return fd, frame
}
