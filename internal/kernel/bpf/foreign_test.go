// SPDX-License-Identifier: Apache-2.0

package bpf_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/bpf"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

// TestForeignXDP: niclane reports the name of a foreign program, and leaves the program in
// place.
func TestForeignXDP(t *testing.T) {
	for _, mode := range []string{"xdpgeneric", "xdpdrv"} {
		for _, x := range []device.XDP{generic, native} {
			t.Run(mode+" "+x.Mode, func(t *testing.T) {
				withXDP(t, 2, func(t *testing.T, c *bpf.Client) {
					theirs, err := bpf.PassProgram("theirs")
					must.Do(t, err)
					defer theirs.Close()
					path := pinned(t, theirs)
					vethtest.Command(t, fmt.Sprintf("ip link set v0 %s pinned %s", mode, path))
					stays(t, c, x, "theirs", mode)
					there, err := c.Read(x)
					must.Do(t, err)
					vethtest.Write(t, c, there, nil) // as rollback --force does
					if left := slot(t); left != "" {
						t.Errorf("in the slot: %q", left)
					}
					vethtest.Write(t, c, nil, x) // the slot is free again
				})
			})
		}
	}
}

// TestForeignLink is TestForeignXDP for a program that a bpf_link holds, as newer
// loaders attach it.
func TestForeignLink(t *testing.T) {
	for _, x := range []device.XDP{generic, native} {
		t.Run(x.Mode, func(t *testing.T) {
			withXDP(t, 2, func(t *testing.T, c *bpf.Client) {
				theirs, err := bpf.PassProgram("theirs")
				must.Do(t, err)
				defer theirs.Close()
				v0 := vethtest.Interface(t, "v0")
				l, err := link.AttachXDP(link.XDPOptions{Program: theirs, Interface: v0.Index,
					Flags: link.XDPGenericMode})
				must.Do(t, err)
				defer l.Close()
				stays(t, c, x, "theirs", "xdpgeneric")
				there, err := c.Read(x)
				must.Do(t, err)
				vethtest.Write(t, c, there, nil) // as rollback --force does
				if left := slot(t); left != "" {
					t.Errorf("in the slot: %q", left)
				}
				vethtest.Write(t, c, nil, x)
			})
		})
	}
}

// TestForeignNamesake: a foreign program has the name of niclane's program. niclane does not
// write into its maps.
func TestForeignNamesake(t *testing.T) {
	withXDP(t, 2, func(t *testing.T, c *bpf.Client) {
		theirs, err := bpf.PassProgram(bpf.IngressProgram)
		must.Do(t, err)
		defer theirs.Close()
		vethtest.Command(t, "ip link set v0 xdpgeneric pinned "+pinned(t, theirs))
		must.Refuse(t, "queue in a namesake's map", c.Write(nil, queue0), unix.ENOENT)
		if all, err := c.Look("v0").Contents(); err != nil || all.XDPEntries != nil {
			t.Errorf("entries of a namesake: %+v, %v", all, err)
		}
	})
}

// stays checks that niclane neither replaces nor removes the program in v0's slot.
func stays(t *testing.T, c *bpf.Client, x device.XDP, name, mode string) {
	t.Helper()
	before := slot(t)
	for what, err := range map[string]error{"attaching": c.Write(nil, x), "detaching": c.Write(x, nil)} {
		if !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s over a foreign program: %v, want EBUSY and %q", what, err, name)
		}
	}
	got, err := c.Read(x)
	want := device.XDP{Dev: "v0", Mode: map[string]string{"xdpgeneric": "generic", "xdpdrv": "native"}[mode],
		Program: name}
	same[device.Object](t, err, want, got)
	for _, o := range []device.Object{queue0, lane1, xdpEntry(1, someEntries[0].Match)} {
		vethtest.Absent(t, o.Key()+" beside a foreign program", c, o)
		must.Refuse(t, o.Key()+" beside a foreign program", c.Write(nil, o), unix.ENOENT)
	}
	if n, err := c.XDPCounters("v0"); n != nil || err != nil {
		t.Errorf("counters of a foreign program: %v, %v", n, err)
	}
	if after := slot(t); after != before {
		t.Errorf("the slot was %q, and then %q", before, after)
	}
}

// slot returns the line that ip shows about v0's XDP program, or "".
func slot(t *testing.T) string {
	t.Helper()
	for line := range strings.Lines(vethtest.Command(t, "ip link show dev v0")) {
		if strings.Contains(line, "prog/xdp") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// pinned pins a program and returns its path, by which ip can attach it.
func pinned(t *testing.T, p interface{ Pin(string) error }) string {
	t.Helper()
	must.Do(t, unix.Unshare(unix.CLONE_NEWNS))
	must.Do(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	const dir = "/run"
	must.Do(t, os.MkdirAll(dir, 0o755))
	must.Do(t, unix.Mount("bpf", dir, "bpf", 0, ""))
	path := dir + "/p"
	must.Do(t, p.Pin(path))
	return path
}
