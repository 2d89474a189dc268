// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lane/device"
)

// module returns an SMBIOS memory device. speed and configured are in MT/s, size as in the table.
func module(size, extended, kind, speed, configured int, texts string) string {
	b := make([]byte, 0x5C)
	b[0], b[1] = memoryDevice, byte(len(b))
	put := func(at, v, bytes int) {
		for i := range bytes {
			b[at+i] = byte(v >> (8 * i))
		}
	}
	put(0x0C, size, 2)
	b[0x12], b[0x17], b[0x1A] = byte(kind), 1, 2
	put(0x15, speed, 2)
	put(0x1C, extended, 4)
	put(0x20, configured, 2)
	return string(b) + texts + "\x00"
}

const end = "\x7f\x04\x01\x00\x00\x00"

// firmware is a table with a BIOS structure without strings, two equal modules, one of another size
// and an empty slot.
func firmware() string {
	large := module(0x7fff, 65536, 0x22, 4800, 4400, "Samsung\x00M321R8GA0BB0-CQKZJ  \x00")
	return "\x00\x05\x00\x00\x00\x00\x00" + large + module(0, 0, 2, 0, 0, "\x00") + large +
		module(16384, 0, 0x1A, 3200, 3200, "\x00") + module(0x8200, 0, 0x99, 0xffff, 0, "\x00") + end
}

func TestDIMMs(t *testing.T) {
	got, err := dimms([]byte(firmware()))
	must.Do(t, err)
	want := []string{"2 × 64 GiB DDR5, 4800 MT/s, runs at 4400 MT/s, Samsung M321R8GA0BB0-CQKZJ",
		"1 × 16 GiB DDR4, 3200 MT/s", "1 × unknown size"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, broken := range []string{"\x11\x03\x00\x00", "\x11\xff\x00\x00", "\x11\x04\x00\x00no end"} {
		if _, err := dimms([]byte(broken)); !errors.Is(err, errTable) {
			t.Errorf("%q: %v", broken, err)
		}
	}
	// A table of SMBIOS 2.1 ends before the speed.
	if got, err := dimms([]byte("\x11\x15\x00\x00" + module(512, 0, 0x12, 0, 0, "")[4:0x15] + "\x00\x00")); err != nil ||
		len(got) != 1 || got[0] != "1 × 512 MiB DDR" {
		t.Errorf("old: %q, %v", got, err)
	}
}

func FuzzDIMMs(f *testing.F) {
	f.Add([]byte(firmware()))
	f.Add([]byte("\x11\x15\x00\x00"))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = dimms(b) })
}

// server is a machine of two sockets with two cores each, two threads a core, and two nodes a
// socket.
func server(t *testing.T) root {
	t.Helper()
	files := map[string]string{
		cpus + "online": "0-7", cpus + "smt/control": "on", cpus + "intel_pstate/no_turbo": "1",
		cpus + "cpuidle/current_driver":                 "intel_idle",
		"/sys/devices/system/node/has_cpu":              "0-3",
		"/proc/cpuinfo":                                 "processor\t: 0\nmicrocode\t: 0xd000363\n",
		dmi + "sys_vendor":                              "Intel Corporation",
		dmi + "product_name":                            "M50CYP2SB1U",
		dmi + "bios_vendor":                             "Intel Corporation",
		dmi + "bios_version":                            "SE5C620.86B.01.01.0005",
		dmi + "bios_date":                               "05/24/2022",
		"/sys/firmware/dmi/tables/DMI":                  firmware(),
		"/sys/block/nvme0n1/size":                       "7501476528",
		"/sys/block/nvme0n1/device/model":               "INTEL SSDPE2KX040T8                      ",
		"/sys/block/nvme0n1/queue/rotational":           "0",
		"/sys/block/sda/size":                           "0",
		"/sys/block/sda/device/vendor":                  "x",
		"/sys/block/sda/queue/rotational":               "1",
		"/sys/block/loop0/size":                         "8",
		"/sys/class/net/eth0/device/current_link_speed": "16.0 GT/s PCIe", "/sys/class/net/eth0/device/current_link_width": "8",
		"/sys/class/net/eth0/device/max_link_speed": "16.0 GT/s PCIe", "/sys/class/net/eth0/device/max_link_width": "16",
		"/etc/tuned/active_profile": "latency-performance", "/proc/1/comm": "systemd", "/proc/7/comm": "tuned",
		"/proc/8/comm": "irqbalance", "/proc/9/comm": "firewalld", "/proc/net/ip_tables_names": "filter\nnat",
	}
	for cpu := range 8 {
		n := string(rune('0' + cpu))
		core := cpu % 4
		files[cpus+"cpu"+n+"/topology/physical_package_id"] = string(rune('0' + core/2))
		files[cpus+"cpu"+n+"/topology/thread_siblings_list"] = string(rune('0'+core)) + "," + string(rune('4'+core))
		files[cpus+"cpufreq/policy"+n+"/scaling_governor"] = "performance"
		files[cpus+"cpufreq/policy"+n+"/energy_performance_preference"] = "performance"
		for i, name := range []string{"POLL", "C1", "C6"} {
			dir := cpus + "cpu" + n + "/cpuidle/state" + string(rune('0'+i)) + "/"
			files[dir+"name"], files[dir+"disable"] = name, "0"
		}
		files[cpus+"cpu"+n+"/cpuidle/state2/disable"] = "1"
	}
	files[cpus+"cpu3/cpuidle/state1/disable"] = "1"
	files[cpus+"cpufreq/policy5/scaling_governor"] = "powersave"
	r := root(t.TempDir())
	for path, text := range files {
		must.Do(t, os.MkdirAll(filepath.Dir(r.path(path)), 0o755))
		must.Do(t, os.WriteFile(r.path(path), []byte(text+"\n"), 0o644))
	}
	pids(t, r, initial)
	return r
}

func pids(t *testing.T, r root, link string) {
	t.Helper()
	must.Do(t, os.RemoveAll(r.path("/proc/self/ns")))
	must.Do(t, os.MkdirAll(r.path("/proc/self/ns"), 0o755))
	must.Do(t, os.Symlink(link, r.path("/proc/self/ns/pid")))
}

func TestServer(t *testing.T) {
	r := server(t)
	got := read(r, func() ([]string, error) { return []string{"inet firewalld"}, nil })
	want := []string{
		"system: Intel Corporation M50CYP2SB1U", "BIOS: Intel Corporation SE5C620.86B.01.01.0005 05/24/2022", "sockets: 2",
		"cores: 4", "threads: 8", "SMT: on", "turbo: off", "microcode: 0xd000363",
		"NUMA nodes: 4, 2 for each socket (SNC or NPS)",
		"DIMMs: 2 × 64 GiB DDR5, 4800 MT/s, runs at 4400 MT/s, Samsung M321R8GA0BB0-CQKZJ; 1 × 16 GiB DDR4, 3200 MT/s; " +
			"1 × unknown size",
		"drives: nvme0n1: INTEL SSDPE2KX040T8, 3840 GB; sda: unknown model, rotational",
		"PCIe of eth0: 16.0 GT/s PCIe x8, of at most 16.0 GT/s PCIe x16",
		"idle states: intel_idle: POLL, C1 (off on 1 of 8 processors), C6 (off)", "governor: performance, powersave",
		"energy preference: performance", "tuned: latency-performance", "irqbalance: running",
		"firewall: firewalld, nftables inet firewalld, ip_tables filter, ip_tables nat",
	}
	if diff := cmp.Diff(want, got.Text()); diff != "" || got.Unknown != nil {
		t.Errorf("unknown %v (-want +got)\n%s", got.Unknown, diff)
	}
	// tuned has ended, and its file is left.
	must.Do(t, os.RemoveAll(r.path("/proc/7")))
	if got := read(r, func() ([]string, error) { return nil, nil }); got.Tuned != "none" {
		t.Errorf("tuned has ended: %q", got.Tuned)
	}
}

// TestUnknown: what cannot be read is unknown, with the reason, and not absent.
func TestUnknown(t *testing.T) {
	r := root(t.TempDir())
	got := read(r, func() ([]string, error) { return nil, os.ErrPermission })
	text := strings.Join(got.Text(), "\n")
	for _, want := range []string{"sockets", "cores", "SMT", "turbo", "microcode", "system", "BIOS", "NUMA nodes", "DIMMs", "drives",
		"idle states", "governor", "energy preference", "tuned", "irqbalance", "firewall", "threads"} {
		if !strings.Contains(text, want+": unknown: ") {
			t.Errorf("%s is not unknown:\n%s", want, text)
		}
	}
	if diff := cmp.Diff(&device.Hardware{Unknown: got.Unknown}, got); diff != "" {
		t.Errorf("known (-want +got)\n%s", diff)
	}
	r = server(t)
	pids(t, r, "pid:[4026532000]")
	must.Do(t, os.WriteFile(r.path(cpus+"cpu2/topology/physical_package_id"), []byte("-1\n"), 0o644))
	got = read(r, func() ([]string, error) { return nil, nil })
	if got.Irqbalance != "" || got.Tuned != "" || got.Sockets != 0 || got.Cores != 0 ||
		got.Unknown["irqbalance"] != "this PID namespace does not show the machine's processes" ||
		got.Unknown["sockets"] != "the kernel knows no sockets" {
		t.Errorf("%+v", got)
	}
}

func TestTables(t *testing.T) {
	attr := "\x0e\x00\x01\x00firewalld\x00\x00\x00"
	got, err := decodeTables([]netlink.Message{{Data: []byte("\x01\x00\x00\x00" + attr)},
		{Data: []byte("\x63\x00\x00\x00" + attr)}})
	must.Do(t, err)
	if diff := cmp.Diff([]string{"inet firewalld", "99 firewalld"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, broken := range []string{"\x01", "\x01\x00\x00\x00\xff\x00\x01\x00"} {
		if _, err := decodeTables([]netlink.Message{{Data: []byte(broken)}}); err == nil {
			t.Errorf("%q was taken", broken)
		}
	}
}

// TestHere reads this machine.
func TestHere(t *testing.T) {
	h := Read()
	if h.Threads == 0 || h.Unknown["threads"] != "" {
		t.Errorf("%+v", h)
	}
	t.Log(strings.Join(h.Text(), "\n"))
}
