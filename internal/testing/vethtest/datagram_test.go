// SPDX-License-Identifier: Apache-2.0

package vethtest

import (
	"encoding/hex"
	"net"
	"testing"
)

func TestDatagram(t *testing.T) {
	from := &net.Interface{HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}}
	to := &net.Interface{HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 2}}
	d := Datagram{VLAN: 7, Source: 2, From: 80, To: 4000, Payload: 2}
	const want = "020000000002020000000001" + "81000007" + "0800" + "4500001e00010000401166ba" + "0a0900020a090001" +
		"00500fa0000a0000" + "0000"
	if got := hex.EncodeToString(d.Frame(from, to)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, ok := ParseDatagram(d.Frame(from, to)); ok {
		t.Errorf("a tagged frame is read as %+v", got)
	}
	d.VLAN = 0
	if got, ok := ParseDatagram(d.Frame(from, to)); !ok || got != d {
		t.Errorf("got %+v, %t, want %+v", got, ok, d)
	}
	if got, ok := ParseDatagram(d.Frame(from, to)[:41]); ok {
		t.Errorf("a part of a frame is read as %+v", got)
	}
}
