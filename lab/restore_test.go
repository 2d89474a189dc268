// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lab/emucard"
)

// A snapshot shows the parts of the host in which a lab could leave objects.
type snapshot struct {
	Links, Netns, Mounts, Run, Cgroups, Sysctls, BPF []string
}

func lines(s string) []string { return strings.Split(strings.TrimSpace(s), "\n") }

func snap(t *testing.T) snapshot {
	t.Helper()
	s := snapshot{
		Links: lines(vethtest.Command(t, "ip -d addr")),
		Netns: lines(vethtest.Command(t, "ip netns")),
	}
	b, err := os.ReadFile("/proc/self/mountinfo")
	must.Do(t, err)
	for _, line := range lines(string(b)) {
		// Leave out the first two fields, which are IDs that the kernel assigns.
		f := strings.Fields(line)
		s.Mounts = append(s.Mounts, strings.Join(f[2:], " "))
	}
	slices.Sort(s.Mounts)
	s.Run = tree(t, "/run")
	g, err := planCgroup(Config{Name: testName()})
	must.Do(t, err)
	if g.Dir != "" {
		// Control groups belong to the whole host, so look only at this test's own.
		s.Cgroups, _ = filepath.Glob(filepath.Join(filepath.Dir(g.Dir), testName()+"*"))
		if !g.V1 {
			b, err := os.ReadFile(filepath.Join(filepath.Dir(g.Dir), "cgroup.subtree_control"))
			must.Do(t, err)
			s.Cgroups = append(s.Cgroups, string(b))
		}
	}
	for _, path := range tree(t, "/proc/sys/net") {
		if v, err := os.ReadFile(path); err == nil {
			s.Sysctls = append(s.Sysctls, path+"="+string(v))
		}
	}
	s.BPF = bpfObjects(t)
	return s
}

func tree(t *testing.T, root string) []string {
	t.Helper()
	var paths []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		paths = append(paths, path)
		return err
	})
	must.Do(t, err)
	return paths
}

// bpfObjects returns the BPF maps of this test's switches, and the programs that use these maps. It
// knows the maps by the addresses in them, because other labs may be up. These objects exist as
// long as a device of the switch's namespace exists.
func bpfObjects(t *testing.T) []string {
	t.Helper()
	var out []string
	ours := map[ebpf.MapID]bool{}
	for id, err := ebpf.MapGetNextID(0); err == nil; id, err = ebpf.MapGetNextID(id) {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			continue // the map was removed meanwhile
		}
		if info, err := m.Info(); err == nil && info.Name == "lab_stations" {
			for _, suffix := range []string{"", "-a", "-b"} {
				var key [8]byte
				copy(key[:], Config{Name: testName() + suffix}.MAC(SUT))
				var index uint32
				if m.Lookup(key, &index) == nil {
					ours[id] = true
					out = append(out, fmt.Sprintf("map %d", id))
				}
			}
		}
		m.Close()
	}
	for id, err := ebpf.ProgramGetNextID(0); err == nil; id, err = ebpf.ProgramGetNextID(id) {
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue
		}
		if info, err := p.Info(); err == nil {
			if ids, ok := info.MapIDs(); ok && slices.ContainsFunc(ids, func(id ebpf.MapID) bool { return ours[id] }) {
				out = append(out, fmt.Sprintf("program %d", id))
			}
		}
		p.Close()
	}
	return out
}

// foreign adds objects to the test's namespace that no lab has made.
func foreign(t *testing.T) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "foreign"
	attrs.HardwareAddr = net.HardwareAddr{2, 0, 0, 0, 9, 9}
	veth := netlink.NewVeth(attrs)
	veth.PeerName = "foreign-peer"
	veth.PeerHardwareAddr = net.HardwareAddr{2, 0, 0, 0, 9, 8}
	must.Do(t, netlink.LinkAdd(veth))
	t.Cleanup(func() {
		if err := netlink.LinkDel(veth); err != nil {
			t.Error(err)
		}
	})
	vethtest.Command(t, "ip netns add foreign")
	t.Cleanup(func() { vethtest.Command(t, "ip netns del foreign") })
}

// same waits until the host is as before. It must wait, because BPF programs end some time after
// the devices that used them.
func same(t *testing.T, what string, before snapshot) {
	t.Helper()
	eventually(t, func() string {
		if diff := cmp.Diff(before, snap(t)); diff != "" {
			return what + " (-before +after):\n" + diff
		}
		return ""
	})
}

func TestLeavesHostAsFound(t *testing.T) {
	vethtest.NeedRoot(t)
	for _, populated := range []bool{false, true} {
		t.Run(map[bool]string{false: "empty", true: "populated"}[populated], func(t *testing.T) {
			if populated {
				foreign(t)
			}
			before := atFirst(t)
			l, err := Up(context.Background(), Config{Name: testName()})
			must.Do(t, err)
			c, err := emucard.Open(l.Config.MAC(SUT))
			must.Do(t, err)
			c.Close()
			up := snap(t)
			for what, differs := range map[string]bool{
				"network namespaces": !slices.Equal(up.Netns, before.Netns),
				"mounts":             !slices.Equal(up.Mounts, before.Mounts),
				"/run":               !slices.Equal(up.Run, before.Run), "BPF": len(up.BPF) == 2 &&
					len(before.BPF) == 0,
			} {
				if !differs {
					t.Errorf("a lab that is up cannot be seen in %s", what)
				}
			}
			must.Do(t, l.Down(context.Background()))
			same(t, "after the lab", before)
		})
	}
}

// TestTwoLabs: the cards of two labs are in the same directory. Each lab removes only its own card.
func TestTwoLabs(t *testing.T) {
	before := snapAsRoot(t)
	a := raise(t, Config{Name: testName() + "-a"})
	middle := snap(t)
	b := raise(t, Config{Name: testName() + "-b"})
	must.Do(t, b.Down(context.Background()))
	same(t, "after the second lab", middle)
	must.Do(t, a.Down(context.Background()))
	same(t, "after both labs", before)
}

// An ending is a context. From its n-th query on, it has ended.
type ending struct {
	context.Context
	n int
}

func (c *ending) Err() error {
	if c.n--; c.n < 0 {
		return context.Canceled
	}
	return nil
}

// TestFailedUp: if Up fails at any step, it leaves nothing behind.
func TestFailedUp(t *testing.T) {
	before := snapAsRoot(t)
	for n := 0; ; n++ {
		l, err := Up(&ending{context.Background(), n}, Config{Name: testName()})
		if err == nil {
			if n < 5 {
				t.Errorf("only %d steps look whether they should go on", n)
			}
			must.Do(t, l.Down(context.Background()))
			break
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("cancelled at step %d: %v", n, err)
		}
		same(t, fmt.Sprintf("cancelled at step %d", n), before)
	}
	same(t, "after the end", before)
}

// TestLeftoverRecord: Up was killed while it wrote its record, and has left a temporary file. Down
// removes it, even without a record.
func TestLeftoverRecord(t *testing.T) {
	before := snapAsRoot(t)
	must.Do(t, os.MkdirAll(recordDir, 0o700))
	if _, err := (record{Config: Config{Name: testName()}}).write(); err != nil {
		t.Fatal(err)
	}
	must.Do(t, Down(context.Background(), testName()))
	same(t, "after the end", before)
}

// TestForeignNames: another program's object has a name that the lab needs. Up fails and does not
// touch the object.
func TestForeignNames(t *testing.T) {
	vethtest.NeedRoot(t)
	name := testName() + "-noise"
	vethtest.Command(t, "ip netns add "+name)
	defer vethtest.Command(t, "ip netns del "+name)
	before := atFirst(t)
	_, err := Up(context.Background(), Config{Name: testName()})
	if !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), name) {
		t.Errorf("got %v, want %v and the name %s", err, fs.ErrExist, name)
	}
	same(t, "after the refusal", before)
}

func snapAsRoot(t *testing.T) snapshot {
	t.Helper()
	vethtest.NeedRoot(t)
	return atFirst(t)
}

// atFirst returns a snapshot of the host. It first waits until the kernel has freed the objects of
// earlier tests' labs.
func atFirst(t *testing.T) snapshot {
	t.Helper()
	eventually(t, func() string {
		if left := bpfObjects(t); len(left) > 0 {
			return fmt.Sprintf("of an earlier test's lab there are still %q", left)
		}
		return ""
	})
	return snap(t)
}

// killed starts the test binary in a role and kills it after the given time.
func killed(t *testing.T, role, name string, after time.Duration) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", role, name)
	must.Do(t, cmd.Start())
	time.Sleep(after)
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // either killed, or ended before
}

// TestKill: Up and Down are killed at random times. The next Down restores the host.
func TestKill(t *testing.T) {
	vethtest.NeedRoot(t)
	name := testName()
	foreign(t)
	before := atFirst(t)
	start := time.Now()
	if _, err := Up(context.Background(), Config{Name: name}); err != nil {
		t.Fatal(err)
	}
	up := time.Since(start)
	start = time.Now()
	must.Do(t, Down(context.Background(), name))
	down := time.Since(start)
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	for i := range rounds {
		// The additional 20 ms are for the start of the program itself.
		after := time.Duration(rand.Int64N(int64(up + up/2 + 20*time.Millisecond)))
		killed(t, upRole, name, after)
		_, err := Open(name)
		t.Logf("start %d killed after %v: %v", i, after, err)
		if err := Down(context.Background(), name); err != nil {
			t.Fatalf("start killed after %v: %v", after, err)
		}
		same(t, "start killed after "+after.String(), before)

		if _, err := Up(context.Background(), Config{Name: name}); err != nil {
			t.Fatal(err)
		}
		after = time.Duration(rand.Int64N(int64(down + down/2 + 20*time.Millisecond)))
		killed(t, downRole, name, after)
		if err := Down(context.Background(), name); err != nil {
			t.Fatalf("end killed after %v: %v", after, err)
		}
		same(t, "end killed after "+after.String(), before)
	}
}
