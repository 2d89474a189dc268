// SPDX-License-Identifier: Apache-2.0

package tc_test

import (
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

// TestReadingIsQuiet: a read causes no notification. Otherwise a watch, which reads after each
// notification, would notify itself again and again.
func TestReadingIsQuiet(t *testing.T) {
	c := inNetns(t)
	clsact := device.Qdisc{Dev: "d0", Parent: "clsact", Type: "clsact", Handle: "ffff:"}
	vethtest.Write(t, c, nil, htb)
	vethtest.Write(t, c, nil, clsact)
	vethtest.Write(t, c, nil, classes[0])
	listener, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{Groups: 1 << (unix.RTNLGRP_TC - 1)})
	must.Do(t, err)
	defer listener.Close()
	for _, o := range []device.Object{htb, clsact, classes[0], classes[1]} {
		if _, err := c.Read(o); err != nil {
			t.Fatal(err)
		}
	}
	for name, read := range map[string]func() error{
		"qdiscs":  func() error { _, err := c.Qdiscs("d0"); return err },
		"classes": func() error { _, err := c.Classes("d0"); return err },
		"filters": func() error { _, err := c.Filters("d0"); return err },
		"a filter": func() error {
			_, err := c.Filter(device.Filter{Dev: "d0", Parent: "egress", Pref: 1, Handle: 1})
			return err
		},
	} {
		if err := read(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	// The first notification that the listener gets must be that of the write below.
	vethtest.Write(t, c, classes[0], nil)
	must.Do(t, listener.SetReadDeadline(time.Now().Add(10*time.Second)))
	got, err := listener.Receive()
	must.Do(t, err)
	if first := got[0].Header.Type; first != unix.RTM_DELTCLASS {
		t.Errorf("the readers told: a message of type %d comes before that of the class that goes", first)
	}
}
