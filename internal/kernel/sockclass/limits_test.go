// SPDX-License-Identifier: Apache-2.0

package sockclass_test

import (
	"os"
	"os/exec"
	"path"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLimits shows what a class does not reach, as the documents state it. It fails on a kernel
// that changes this.
func TestLimits(t *testing.T) {
	run(t, func(b *bed) {
		a := startApp(t, b.v2, false)
		a.do("tcp l")
		a.do("listen l 0")
		a.do("udp u")
		if err := os.WriteFile(path.Join(b.dir(), "cgroup.procs"), []byte(a.pid()), 0); err != nil {
			t.Fatal(err)
		}
		b.write(nil, b.class("1:10"))
		a.connect("l", "c", "s")
		// A socket belongs to the group in which its process made it. An accepted socket
		// belongs to the group of its listener.
		a.want("moved into the group", "l=10010", "u=10010", "c=10010", "s=0")
		// IP_TOS sets the priority too (rt_tos2priority).
		a.do("udp tos")
		a.do("tos tos 0x10")
		a.want("IP_TOS set afterwards", "tos=6")
		a.do("tcp tos-tcp")
		a.do("tos tos-tcp 0x08")
		a.do("connect tos-tcp 127.0.0.1 %d", a.do("port l"))
		a.want("IP_TOS set before the connection", "tos-tcp=2")
		b.write(b.class("1:10"), nil)
		a.want("removed", "l=0", "u=0", "c=0", "s=0", "tos=6", "tos-tcp=2")
	})
}

// TestWithoutBTF simulates a kernel without BTF, the description of its types. The class does
// not reach connections that wait for accept(), but reaches all others.
func TestWithoutBTF(t *testing.T) {
	run(t, func(b *bed) {
		a := startApp(t, b.dir(), false)
		a.do("tcp l")
		a.do("listen l 0")
		a.do("udp u")
		a.connect("l", "c", "s")
		a.do("tcp queued-client")
		a.do("connect queued-client 127.0.0.1 %d", a.do("port l"))
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			t.Skipf("unshare of the mount namespace: %v", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			t.Skipf("private mounts: %v", err)
		}
		if err := unix.Mount("none", "/sys/kernel/btf", "tmpfs", 0, ""); err != nil {
			t.Skipf("kernel without BTF: %v", err)
		}
		// A separate process, because the test's process may have read the types already.
		cmd := exec.Command("/proc/self/exe", writerArg, b.v2, "null", `{"cgroup":"`+b.name+`","priority":"1:10"}`)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		a.do("accept l queued")
		a.want("made", "l=10010", "u=10010", "c=10010", "s=10010", "queued-client=10010", "queued=0")
		b.write(b.class("1:10"), nil)
	})
}
