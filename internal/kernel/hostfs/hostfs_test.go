// SPDX-License-Identifier: Apache-2.0

package hostfs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/cgroup"
	"github.com/niclane/niclane/internal/kernel/hostfs"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

func open(t *testing.T, cgroups ...string) *hostfs.FS {
	t.Helper()
	f, err := hostfs.Open(cgroups)
	must.Do(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// group makes a directory that replaces a control group mount in tests.
func group(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		must.Do(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	return dir
}

func TestReadWrite(t *testing.T) {
	dir := group(t, map[string]string{"app/cpuset.cpus": "0-3\n", "app/cpuset.mems": "0\n"})
	f := open(t, dir)
	id := device.File{Path: dir + "/app/cpuset.cpus", Format: device.FileCPUList}
	got, err := f.Read(id)
	must.Do(t, err)
	if want := (device.File{Path: id.Path, Format: id.Format, Value: "0-3"}); got != want {
		t.Errorf("Read: %+v, want %+v", got, want)
	}
	id.Value = "1"
	must.Do(t, f.Write(got, id))
	b, err := os.ReadFile(id.Path)
	must.Do(t, err)
	// One write at offset 0 without truncation, as kernel files need it.
	if got, want := string(b), "1-3\n"; got != want {
		t.Errorf("file holds %q, want %q", got, want)
	}
	empty := device.File{Path: dir + "/app/cpuset.mems"}
	must.Do(t, f.Write(empty, empty))
	if b, err := os.ReadFile(empty.Path); err != nil || string(b) != "\n\n" {
		t.Errorf("after an empty value the file holds %q, %v: want a line end written", b, err)
	}
}

func TestAbsent(t *testing.T) {
	dir := group(t, nil)
	f := open(t, dir)
	id := device.File{Path: dir + "/nosuch/cpuset.cpus", Value: "0"}
	vethtest.Absent(t, "Read", f, id)
	must.Refuse(t, "Write", f.Write(id, id), fs.ErrNotExist)
	id.Path = dir + "/cpuset.cpus"
	must.Refuse(t, "Write", f.Write(id, id), fs.ErrNotExist)
	if names, err := os.ReadDir(dir); err != nil || len(names) != 0 {
		t.Errorf("a file was made: %v, %v", names, err)
	}
	if err := f.Write(nil, id); err == nil {
		t.Error("a file was made from nothing")
	}
	if err := f.Write(id, nil); err == nil {
		t.Error("a file was removed")
	}
}

func TestRefusedPaths(t *testing.T) {
	dir := group(t, map[string]string{"app/cpuset.cpus": "0\n"})
	outside := group(t, map[string]string{"secret": "keep\n", "dir/secret": "keep\n"})
	for link, target := range map[string]string{
		"file": outside + "/secret", "dir": outside + "/dir", "up": "..", "inside": "app",
	} {
		must.Do(t, os.Symlink(target, filepath.Join(dir, link)))
	}
	f := open(t, dir)
	for _, name := range []string{
		"",
		"cpuset.cpus",
		"/etc/hostname",
		"/proc/sys/kernel/hostname",
		"/proc/sys/net",
		"/proc/sys/net/../kernel/hostname",
		"/proc/self/comm",
		"/sys/kernel/profiling",
		"/sys/class/net/../../kernel/profiling",
		"/sys/class/net/",
		"/sys/class/net/lo",
		"/sys/class/net/lo/subsystem/lo/mtu",
		"/sys/class/net/lo/../lo/mtu",
		"/sys/class/net//lo/mtu",
		dir,
		dir + "/../" + filepath.Base(outside) + "/secret",
		dir + "/app/../app/cpuset.cpus",
		dir + "/app//cpuset.cpus",
		dir + "x/secret",
		dir + "/file",
		dir + "/dir/secret",
		dir + "/inside/cpuset.cpus",
		dir + "/up/" + filepath.Base(outside) + "/secret",
		outside + "/secret",
	} {
		if err := f.WriteFile(name, "1"); err == nil {
			t.Errorf("%q was written", name)
		}
	}
	if err := f.WriteFile(dir+"/app/cpuset.cpus", "1\x002"); err == nil {
		t.Error("a zero byte was written")
	}
	for _, name := range []string{"secret", "dir/secret"} {
		if b, err := os.ReadFile(filepath.Join(outside, name)); err != nil || string(b) != "keep\n" {
			t.Errorf("%s holds %q, %v", name, b, err)
		}
	}
	if _, err := f.ReadFile(dir + "/dir/secret"); err == nil {
		t.Error("a file outside was read through a link")
	}
	if _, err := f.ReadFile("/etc/hostname"); err == nil {
		t.Error("/etc/hostname was read")
	}
}

// TestNamespace: an FS shows the test's network namespace. /sys does not, because a sysfs shows
// the namespace in which it was mounted.
func TestNamespace(t *testing.T) {
	vethtest.Run(t, 4, func(t *testing.T) {
		f := open(t)
		if !f.Private() {
			t.Fatal("no sysfs of its own was mounted")
		}
		got, err := f.ReadDir("/sys/class/net")
		must.Do(t, err)
		for _, dev := range []string{"lo", vethtest.Dev, vethtest.Peer} {
			if !slices.Contains(got, dev) {
				t.Errorf("/sys/class/net has %v, want %s", got, dev)
			}
		}
		if slices.Contains(got, "eth0") {
			t.Errorf("/sys/class/net has %v: the host's devices", got)
		}

		id := device.File{Path: "/sys/class/net/" + vethtest.Dev + "/queues/tx-2/xps_rxqs", Format: device.FileCPUMask}
		before, err := f.Read(id)
		if err != nil || before == nil {
			t.Fatalf("Read: %v, %v", before, err)
		}
		id.Value = "4"
		must.Do(t, f.Write(before, id))
		after, err := f.Read(id)
		if err != nil || !device.Equal(after, id) {
			t.Errorf("after writing: %v, %v, want %v", after, err, id)
		}
		must.Do(t, f.Write(id, before))
		if after, err := f.Read(id); err != nil || !device.Equal(after, before) {
			t.Errorf("after writing back: %v, %v, want %v", after, err, before)
		}

		dir := "/sys/class/net/" + vethtest.Dev
		for _, tt := range []struct {
			name, path, value string
			want              error
		}{
			{"the driver has no such setting", dir + "/queues/tx-0/tx_maxrate", "100", unix.EOPNOTSUPP},
			{"not a mask", dir + "/queues/tx-0/xps_cpus", "nonsense", unix.EINVAL},
			{"no such queue", dir + "/queues/tx-4/xps_cpus", "1", unix.ENOENT},
			{"no such device", "/sys/class/net/nosuch0/threaded", "1", unix.ENODEV},
			{"through a link", dir + "/subsystem/" + vethtest.Peer + "/mtu", "1400", unix.ELOOP},
			{"no NAPI", dir + "/threaded", "1", unix.EOPNOTSUPP},
		} {
			if err := f.WriteFile(tt.path, tt.value); !errors.Is(err, tt.want) {
				t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
			} else if !strings.Contains(err.Error(), tt.path) {
				t.Errorf("%s: %q does not name the file", tt.name, err)
			}
		}
		conf := "/proc/sys/net/ipv4/conf/" + vethtest.Dev + "/arp_ignore"
		must.Do(t, f.WriteFile(conf, "1"))
		if b, err := f.ReadFile(conf); err != nil || string(b) != "1\n" {
			t.Errorf("%s holds %q, %v, want 1", conf, b, err)
		}
	})
}

// TestControlGroup: a real control group accepts a list of CPUs, and then an empty list.
func TestControlGroup(t *testing.T) {
	c, err := cgroup.Find(nil)
	must.Do(t, err)
	dir := c.CpusetDir(fmt.Sprintf("niclane-test-%d", os.Getpid()))
	if dir == "" {
		t.Skip("no cpuset controller here")
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip(err)
	}
	defer os.Remove(dir)
	f := open(t, cgroup.Mounts(c)...)
	id := device.File{Path: dir + "/cpuset.cpus", Format: device.FileCPUList}
	before, err := f.Read(id)
	must.Do(t, err)
	if before == nil {
		t.Skip("the root group gives no cpuset to its children")
	}
	set := id
	set.Value = "0"
	for _, step := range []struct{ old, new device.Object }{{before, set}, {set, before}} {
		must.Do(t, f.Write(step.old, step.new))
		if got, err := f.Read(id); err != nil || !device.Equal(got, step.new) {
			t.Errorf("holds %v, %v, want %v", got, err, step.new)
		}
	}
	set.Value = "8191"
	if err := f.Write(before, set); err == nil {
		t.Error("a CPU that does not exist was taken")
	} else if !strings.Contains(err.Error(), dir) {
		t.Errorf("%q does not name the file", err)
	}
}
