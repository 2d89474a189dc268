// SPDX-License-Identifier: Apache-2.0

package sockclass_test

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/cgroup"
	"github.com/niclane/niclane/internal/kernel/sockclass"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

// A bed is a network namespace, a control group and a client.
type bed struct {
	*testing.T
	v2, name string
	c        *sockclass.Client
}

// class returns a class of the group, or of a group below it.
func (b *bed) class(priority string, below ...string) device.CgroupClass {
	return device.CgroupClass{Cgroup: path.Join(append([]string{b.name}, below...)...), Priority: priority}
}

func (b *bed) dir(below ...string) string {
	return path.Join(append([]string{b.v2, b.name}, below...)...)
}

// mkdir makes a group. At the end of the test, it waits for the end of the group's processes and
// removes the group.
func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		if errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES) {
			t.Skipf("control group: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		vethtest.Until(t, "remove "+dir, func() bool {
			err := os.Remove(dir)
			return err == nil || errors.Is(err, unix.ENOENT)
		})
	})
}

func run(t *testing.T, f func(b *bed)) {
	t.Helper()
	groups, err := cgroup.Find(nil)
	must.Do(t, err)
	if groups.V2 == "" {
		t.Skip("no unified hierarchy of control groups is mounted")
	}
	vethtest.Run(t, 1, func(t *testing.T) {
		b := &bed{T: t, v2: groups.V2, name: fmt.Sprintf("/nls-%d-%s", os.Getpid(),
			strings.ReplaceAll(t.Name(), "/", "-"))}
		mkdir(t, b.dir())
		c, err := sockclass.Open(b.v2)
		must.Do(t, err)
		b.c = c
		f(b)
	})
}

func (b *bed) read(o device.Object) device.Object {
	b.Helper()
	got, err := b.c.Read(o)
	must.Do(b, err)
	return got
}

// write writes a class and reads it back.
func (b *bed) write(old, next device.Object) {
	b.Helper()
	vethtest.Write(b, b.c, old, next)
}

func TestObjectReadsBack(t *testing.T) {
	run(t, func(b *bed) {
		if got := b.read(b.class("1:10")); got != nil {
			t.Fatalf("at first: %+v", got)
		}
		b.write(nil, b.class("1:10"))
		b.write(b.class("1:10"), b.class("1:ffff"))
		b.write(b.class("1:ffff"), b.class("ffff:1"))
		must.Refuse(t, "made twice", b.c.Write(nil, b.class("1:10")), unix.EEXIST)
		b.write(b.class("ffff:1"), nil)
		must.Refuse(t, "removed twice", b.c.Write(b.class("1:10"), nil), unix.ENOENT)
		for _, priority := range []string{"1:", "", "0", "1:10000", "x:1"} {
			if err := b.c.Write(nil, b.class(priority)); err == nil {
				t.Errorf("priority %q was taken", priority)
			}
			if got := b.read(b.class("")); got != nil {
				t.Errorf("after priority %q: %+v", priority, got)
			}
		}
	})
}

func TestNoSuchGroup(t *testing.T) {
	run(t, func(b *bed) {
		none, err := sockclass.Open("")
		must.Do(t, err)
		for _, c := range []*sockclass.Client{b.c, none} {
			o := b.class("1:10", "none")
			vethtest.Absent(t, "read", c, o)
			err := c.Write(nil, o)
			if !errors.Is(err, unix.ENOENT) || !strings.Contains(err.Error(), o.Cgroup) {
				t.Errorf("write: %v, want ENOENT naming %s", err, o.Cgroup)
			}
		}
		// Outside the hierarchy, the client finds no group.
		vethtest.Absent(t, "read outside", b.c, device.CgroupClass{Cgroup: "/../../../../proc"})
	})
}

// TestSockets checks each kind of socket, made before the class, under the class, and after the
// class is removed.
func TestSockets(t *testing.T) {
	run(t, func(b *bed) {
		a := startApp(t, b.dir(), false)
		outside := startApp(t, b.v2, false)
		for _, line := range []string{
			"tcp listener", "listener-listen", "udp udp", "udp6 udp6", "unix unix",
			"udp chosen", "set chosen 3", "tcp chosen-tcp", "set chosen-tcp 3", "tcp connecting",
		} {
			if line == "listener-listen" {
				line = "listen listener 0"
			}
			a.do("%s", line)
		}
		a.connect("listener", "client", "accepted")
		outside.do("udp udp")

		before := []string{"listener=0", "udp=0", "udp6=0", "unix=0", "client=0", "accepted=0", "connecting=0",
			"chosen=3", "chosen-tcp=3"}
		a.want("before", before...)

		// These connections wait for accept() while the class is made.
		a.do("tcp queued-client")
		a.do("connect queued-client 127.0.0.1 %d", a.do("port listener"))
		b.write(nil, b.class("1:10"))
		a.do("accept listener queued")
		a.want("made", "listener=10010", "udp=10010", "udp6=10010", "unix=0", "client=10010", "accepted=10010",
			"queued-client=10010", "queued=10010", "connecting=10010", "chosen=3", "chosen-tcp=3")
		outside.want("made", "udp=0")

		a.do("connect connecting 127.0.0.1 %d", a.do("port listener"))
		a.do("accept listener connecting-accepted")
		a.do("connect chosen-tcp 127.0.0.1 %d", a.do("port listener"))
		a.do("accept listener chosen-accepted")
		a.connect("listener", "client2", "accepted2")
		a.do("tcp listener2")
		a.do("listen listener2 0")
		a.connect("listener2", "client3", "accepted3")
		a.do("udp udp2")
		a.do("udp6 udp62")
		a.do("unix unix2")
		a.do("tcp zero")
		a.do("set zero 0")
		a.do("connect zero 127.0.0.1 %d", a.do("port listener2"))
		a.do("udp own")
		a.do("set own 5")
		outside.do("udp udp2")
		later := []string{"connecting-accepted=", "client2=", "accepted2=", "listener2=", "client3=", "accepted3=",
			"zero=", "udp2=", "udp62="}
		want := func(class string) []string {
			out := []string{"chosen=3", "chosen-tcp=3", "own=5", "unix=0", "unix2=0", "chosen-accepted=" + class}
			for _, s := range []string{"listener", "udp", "udp6", "client", "accepted", "queued-client", "queued",
				"connecting"} {
				out = append(out, s+"="+class)
			}
			for _, s := range later {
				out = append(out, s+class)
			}
			return out
		}
		a.want("under the class", want("10010")...)
		outside.want("under the class", "udp=0", "udp2=0")

		b.write(b.class("1:10"), b.class("1:20"))
		a.want("exchanged", want("10020")...)
		a.connect("listener", "client4", "accepted4")
		later = append(later, "client4=", "accepted4=")
		a.want("exchanged", want("10020")...)

		b.write(b.class("1:20"), nil)
		a.want("removed", want("0")...)
		a.connect("listener", "client5", "accepted5")
		a.do("udp udp5")
		later = append(later, "client5=", "accepted5=", "udp5=")
		a.want("removed", want("0")...)
	})
}
