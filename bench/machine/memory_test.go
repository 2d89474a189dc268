// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

func TestMemoryText(t *testing.T) {
	var m Memory
	if err := m.vmstat(strings.NewReader("nr_free_pages 5\nallocstall_dma 1\nallocstall_normal 2\npgscan_kswapd " +
		"10\npgscan_direct 20\npgscan_anon 7\n")); err != nil {
		t.Fatal(err)
	}
	if m.Scanned != 30 || m.Stalls != 3 {
		t.Errorf("%+v, want 30 pages and 3 stalls", m)
	}
	if err := m.vmstat(strings.NewReader("pgscan_direct many\n")); err == nil {
		t.Error("a counter that is none was taken")
	}
	got, err := diskRead(strings.NewReader(`   7 0 loop0 9 0 900 0
 254 0 vda 10 0 4 0 0
 254 1 vda1 10 0 3 0 0
 259 0 nvme0n1 10 0 6 0 0
 259 1 nvme0n1p1 10 0 6 0 0
 253 0 dm-0 10 0 6 0 0
`))
	if err != nil || got != 10*512 {
		t.Errorf("%d, %v, want the 4 and 6 sectors of the two disks", got, err)
	}
}

// TestDiskRead: reading a file that is not in the page cache counts as a read from disk.
func TestDiskRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, make([]byte, 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fsync(int(f.Fd())); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	if st.Type == unix.TMPFS_MAGIC {
		t.Skip("the directory for temporary files is on no disk")
	}
	before, err := readMemory()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	after, err := readMemory()
	if err != nil {
		t.Fatal(err)
	}
	if d := after.since(before); d.DiskRead < 8<<20 {
		t.Errorf("%d bytes from disks, want at least the %d of the file", d.DiskRead, 8<<20)
	}
}

// TestChildren: the children of a process count as part of it.
func TestChildren(t *testing.T) {
	cmd := exec.Command("sh", "-c", "while :; do :; done & wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Kill(-cmd.Process.Pid, unix.SIGKILL); err != nil {
			t.Error(err)
		}
		cmd.Wait()
	}()
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; {
		p, err := readProcess(fs, cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.threads) == 2 && p.user >= 0.05 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d threads, %v s: the child is not among them", len(p.threads), p.user)
		}
	}
}
