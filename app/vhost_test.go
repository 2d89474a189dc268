// SPDX-License-Identifier: Apache-2.0

package app_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/app"
	"github.com/niclane/niclane/internal/testing/must"
)

// vhostArg makes the test binary act as a virtual machine with a vhost thread. The argument after
// it is TAP.
const vhostArg = "test-vhost"

const vhostNode = "/dev/vhost-net"

// vhostSetOwner is VHOST_SET_OWNER (linux/vhost.h): _IO(0xaf, 1).
const vhostSetOwner = 0xaf01

// vhostMain opens a tap and a vhost device as QEMU does. It then prints a line, and ends when its
// standard input ends.
func vhostMain(tap string) error {
	tun, err := unix.Open("/dev/net/tun", unix.O_RDWR, 0)
	if err != nil {
		return err
	}
	req, err := unix.NewIfreq(tap)
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(tun, unix.TUNSETIFF, req); err != nil {
		return fmt.Errorf("%s: %w", tap, err)
	}
	dev, err := unix.Open(vhostNode, unix.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := unix.IoctlSetInt(dev, vhostSetOwner, 0); err != nil {
		return fmt.Errorf("VHOST_SET_OWNER: %w", err)
	}
	fmt.Println("owner")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// vhostThreads returns the vhost threads of a process. Before Linux 6.4, they are not its threads
// but children of kthreadd.
func vhostThreads(t *testing.T, pid int) (found []int) {
	t.Helper()
	name := fmt.Sprintf("vhost-%d", pid)
	for _, pattern := range []string{fmt.Sprintf("/proc/%d/task/*/comm", pid), "/proc/[0-9]*/comm"} {
		comms, err := filepath.Glob(pattern)
		must.Do(t, err)
		for _, comm := range comms {
			if text, err := os.ReadFile(comm); err == nil && strings.TrimSpace(string(text)) == name {
				tid, err := strconv.Atoi(filepath.Base(filepath.Dir(comm)))
				must.Do(t, err)
				found = append(found, tid)
			}
		}
	}
	return found
}

// TestVhost: the vhost thread of a virtual machine enters and leaves the lane together with the
// machine.
func TestVhost(t *testing.T) {
	b := newBed(t)
	if _, err := os.Stat(vhostNode); errors.Is(err, fs.ErrNotExist) {
		t.Skip("no vhost_net in this kernel")
	}
	b.commands("ip tuntap add dev vm0 mode tap", "ip link set vm0 up")
	b.Cleanup(func() { b.commands("ip link del vm0") })
	cmd := exec.Command("/proc/self/exe", vhostArg, "vm0")
	cmd.Stderr = os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	must.Do(t, errors.Join(err1, err2, cmd.Start()))
	b.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "owner\n" {
		t.Fatalf("it says %q, %v", line, err)
	}
	movers := vhostThreads(t, cmd.Process.Pid)
	if len(movers) != 1 {
		t.Fatalf("threads %v of vhost, want one", movers)
	}
	before := allowed(t, movers[0])
	if len(before) < 2 {
		t.Skip("one processor: there is nothing to confine to")
	}

	b.lane.Config, b.lane.Members = "/lanes.yaml", []app.Member{{Protocol: "tcp", Addrs: []string{"10.88.0.2/32"}}}
	b.attach(options(b.dir), app.Target{Tap: "vm0"})
	if cpus := allowed(t, movers[0]); !slices.Equal(cpus, []int{0}) {
		t.Errorf("in the lane it runs on processors %v, want the lane's, 0", cpus)
	}
	b.detach(app.Choice{Tap: "vm0"})
	if cpus := allowed(t, movers[0]); !slices.Equal(cpus, before) {
		t.Errorf("detached, it runs on processors %v, before on %v", cpus, before)
	}
	b.nothingLeft()
}
