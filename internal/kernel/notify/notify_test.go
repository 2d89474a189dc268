// SPDX-License-Identifier: Apache-2.0

package notify_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/cgroup"
	"github.com/niclane/niclane/internal/kernel/ethtool"
	"github.com/niclane/niclane/internal/kernel/nlsock"
	"github.com/niclane/niclane/internal/kernel/notify"
	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

func TestMain(m *testing.M) { os.Exit(vethtest.Isolate(m)) }

// expect waits for an event whose text contains all words. It returns that event and those
// before it.
func expect(t testing.TB, s *notify.Source, words ...string) []string {
	t.Helper()
	var seen []string
	timeout := time.After(30 * time.Second)
next:
	for {
		select {
		case e, ok := <-s.Events():
			if !ok {
				t.Fatalf("the source has ended; seen %q", seen)
			}
			seen = append(seen, e.String())
			for _, w := range words {
				if !strings.Contains(e.String(), w) {
					continue next
				}
			}
			return seen
		case <-timeout:
			t.Fatalf("no event with %q; seen %q", words, seen)
		}
	}
}

func open(t testing.TB) *notify.Source {
	t.Helper()
	s, err := notify.Open()
	must.Do(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func watch(t testing.TB, s *notify.Source, in notify.Interest) bool {
	t.Helper()
	grown, err := s.Watch(in)
	must.Do(t, err)
	return grown
}

// clsactParent is TC_H_CLSACT of linux/pkt_sched.h.
const clsactParent = 0xfffffff1

// askQdisc requests one qdisc, by its parent, without a dump. The kernel sends the answer to
// all listeners.
func askQdisc(index int, parent uint32) error {
	c, err := nlsock.Dial(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer c.Close()
	b := make([]byte, 20) // struct tcmsg
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	binary.NativeEndian.PutUint32(b[12:], parent)
	_, err = c.Send(netlink.Message{Header: netlink.Header{Type: unix.RTM_GETQDISC,
		Flags: netlink.Request | netlink.Echo}, Data: b})
	if err != nil {
		return err
	}
	_, err = c.Receive()
	return err
}

// TestDevice: the source reports changes of the device of interest, and none of another device.
func TestDevice(t *testing.T) {
	vethtest.NeedRoot(t)
	vethtest.Run(t, 2, func(t *testing.T) {
		s := open(t)
		link := vethtest.Interface(t, vethtest.Dev)
		peer := vethtest.Interface(t, vethtest.Peer)
		in := notify.Interest{Devices: []string{vethtest.Dev}, Indexes: []int{link.Index}}
		if !watch(t, s, in) {
			t.Error("a device that was not of interest is no news")
		}
		if watch(t, s, in) {
			t.Error("the same interest is news")
		}
		c, err := tc.Open()
		must.Do(t, err)
		defer c.Close()
		if err := c.Write(nil, device.Qdisc{Dev: vethtest.Peer, Parent: "root", Type: "htb",
			Handle: "2:"}); err != nil {
			t.Fatal(err)
		}
		vethtest.AddAddress(t, peer.Index, [4]byte{10, 9, 0, 2}, 24)
		must.Do(t, c.Write(nil, device.Qdisc{Dev: vethtest.Dev, Parent: "root", Type: "htb", Handle: "1:"}))
		if seen := expect(t, s, "tc changed qdisc 1:"); strings.Contains(fmt.Sprint(seen), "2:") ||
			strings.Contains(fmt.Sprint(seen), "address") {
			t.Errorf("the other device's: %q", seen)
		}
		// A request for a qdisc is not a change, although the kernel sends the same message.
		clsact := device.Qdisc{Dev: vethtest.Dev, Parent: "clsact", Type: "clsact", Handle: "ffff:"}
		must.Do(t, c.Write(nil, clsact))
		expect(t, s, "tc changed qdisc ffff:")
		for range 3 {
			must.Do(t, askQdisc(link.Index, clsactParent))
		}
		vethtest.AddAddress(t, link.Index, [4]byte{10, 9, 0, 1}, 24)
		seen := slices.DeleteFunc(expect(t, s, "address added"), func(e string) bool {
			return strings.HasPrefix(e, "link changed") // the kernel may still report that the link has come up
		})
		if len(seen) > 1 {
			t.Errorf("asking was told: %q", seen)
		}
		vethtest.SetUp(t, vethtest.Dev, false)
		expect(t, s, "link down", vethtest.Dev)
		e, err := ethtool.Open()
		must.Do(t, err)
		defer e.Close()
		if err := e.Write(device.Channels{Dev: vethtest.Dev, RX: 2, TX: 2},
			device.Channels{Dev: vethtest.Dev, RX: 1, TX: 1}); err != nil {
			t.Fatal(err)
		}
		expect(t, s, "ethtool changed", vethtest.Dev)
	})
}

// TestRenamed: a rename is reported for the device's number and for its new name.
func TestRenamed(t *testing.T) {
	vethtest.NeedRoot(t)
	vethtest.Run(t, 1, func(t *testing.T) {
		s := open(t)
		link := vethtest.Interface(t, vethtest.Dev)
		watch(t, s, notify.Interest{Devices: []string{vethtest.Dev}, Indexes: []int{link.Index}})
		vethtest.IP(t, "link set v0 name other")
		// The kernel sends both notifications, in any order.
		seen := expect(t, s, "other")
		for strings.Count(fmt.Sprint(seen), " other") < 2 {
			seen = append(seen, expect(t, s, "other")...)
		}
		if all := fmt.Sprint(seen); !strings.Contains(all, "uevent move other") ||
			!strings.Contains(all, "link changed other") {
			t.Errorf("seen %q", seen)
		}
		vethtest.IP(t, "link del other")
		expect(t, s, "link removed")
	})
}

// TestFiles: the source reports writes to files of sysfs and procfs, control groups that are
// made or removed, and processes that end.
func TestFiles(t *testing.T) {
	vethtest.NeedRoot(t)
	groups, err := cgroup.Find(nil)
	must.Do(t, err)
	mount := groups.V2
	if mount == "" {
		for _, mount = range groups.V1 {
			break
		}
	}
	if mount == "" {
		t.Skip("no control groups are mounted here")
	}
	s := open(t)
	sleeper := exec.Command("sleep", "1000")
	must.Do(t, sleeper.Start())
	sys, proc := "/sys/class/net/lo/tx_queue_len", "/proc/sys/net/ipv4/conf/lo/arp_announce"
	in := notify.Interest{Files: []string{sys, proc, "/sys/class/net/lo/none"}, Dirs: []string{mount},
		PIDs: []int{sleeper.Process.Pid}}
	if !watch(t, s, in) {
		t.Error("new files are no news")
	}
	if watch(t, s, in) {
		t.Error("the same files are news")
	}
	for _, file := range []string{sys, proc} {
		b, err := os.ReadFile(file)
		must.Do(t, err)
		dropCaches(t)
		must.Do(t, os.WriteFile(file, b, 0))
		expect(t, s, "file written", file)
	}
	group := filepath.Join(mount, fmt.Sprintf("niclane-notify-%d", os.Getpid()))
	must.Do(t, os.Mkdir(group, 0o755))
	expect(t, s, "directory made", group)
	must.Do(t, os.Remove(group))
	expect(t, s, "directory removed", group)
	// For control groups in Births, the source also reports that their parents are made.
	in.Dirs, in.Births = nil, []string{group + "/a/b"}
	watch(t, s, in)
	made(t, group+"-other")
	made(t, group)
	if seen := expect(t, s, "directory made", group); strings.Contains(fmt.Sprint(seen), "other") {
		t.Errorf("another group is told: %q", seen)
	}
	if !watch(t, s, in) {
		t.Error("a directory that came is no news")
	}
	made(t, group+"/a")
	expect(t, s, "directory made", group+"/a")
	must.Do(t, sleeper.Process.Kill())
	expect(t, s, "process ended", fmt.Sprint(sleeper.Process.Pid))
	_ = sleeper.Wait() // killed
	if !watch(t, s, in) {
		t.Error("a process that has ended is no news")
	}
}

// made makes a control group, which is removed when the test ends.
func made(t *testing.T, group string) {
	t.Helper()
	must.Do(t, os.Mkdir(group, 0o755))
	t.Cleanup(func() {
		if err := os.Remove(group); err != nil {
			t.Error(err)
		}
	})
}

// dropCaches makes the kernel drop unused names from its cache.
func dropCaches(t *testing.T) {
	t.Helper()
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("2"), 0); err != nil {
		t.Logf("names are not dropped: %v", err)
	}
}

// TestLost: the source reports that notifications were dropped.
func TestLost(t *testing.T) {
	vethtest.NeedRoot(t)
	vethtest.Run(t, 1, func(t *testing.T) {
		s := open(t)
		link := vethtest.Interface(t, vethtest.Dev)
		watch(t, s, notify.Interest{Devices: []string{vethtest.Dev}, Indexes: []int{link.Index}})
		// The test reads no events: first the channel fills, then the sockets' buffers.
		script := "qdisc add dev v0 root handle 1: htb\n"
		for i := range 5000 {
			script += fmt.Sprintf("class add dev v0 parent 1: classid 1:%x htb rate 1mbit\n", i+1)
		}
		cmd := exec.Command("tc", "-batch", "-")
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("tc: %v: %s", err, out)
		}
		expect(t, s, "lost notifications")
	})
}

// TestClose: Close ends a waiting source and closes its channel.
func TestClose(t *testing.T) {
	s := open(t)
	must.Do(t, s.Close())
	if _, ok := <-s.Events(); ok {
		t.Error("an event after the end")
	}
}
