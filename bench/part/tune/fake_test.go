// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// A fake is a card with up to four channels, each with two interrupts. It refuses rx-usecs 7.
type fake struct {
	t        *testing.T
	root     string
	channels device.Channels
	ring     device.Ring
	coalesce device.Coalesce
	irqs     map[int][]string
	log      []string
	lacks    bool // it has no channels, rings or moderation
}

func (f *fake) Close() error { return nil }

func (f *fake) Channels(string) (now, most device.Channels, err error) {
	return f.channels, device.Channels{Combined: 4}, nil
}

func (f *fake) Ring(string) (now, most device.Ring, err error) {
	if f.lacks {
		return now, most, unix.EOPNOTSUPP
	}
	return f.ring, device.Ring{RX: 4096, TX: 1024}, nil
}

func (f *fake) Read(o device.Object) (device.Object, error) {
	switch o := o.(type) {
	case device.Channels:
		if !f.lacks {
			return f.channels, nil
		}
	case device.Ring:
		if !f.lacks {
			return f.ring, nil
		}
	case device.Coalesce:
		if !f.lacks {
			return f.coalesce, nil
		}
	case device.Affinity:
		if cpus := f.irqs[o.Queue]; cpus != nil {
			return device.Affinity{Dev: o.Dev, Queue: o.Queue, CPUs: slices.Clone(cpus)}, nil
		}
	}
	return nil, nil
}

// Write makes all queues again like a driver: their interrupts are on all processors, and they have
// no masks.
func (f *fake) Write(_, next device.Object) error {
	f.log = append(f.log, next.Key()+" "+next.Brief())
	switch o := next.(type) {
	case device.Channels:
		for q := range 4 {
			dir := fmt.Sprintf("sys/class/net/eth2/queues/tx-%d/", q)
			switch exists := f.irqs[q] != nil; {
			case exists && q >= o.Combined:
				delete(f.irqs, q)
				if err := os.RemoveAll(filepath.Join(f.root, dir)); err != nil {
					return err
				}
			case q < o.Combined:
				f.irqs[q] = []string{"0-7", "0-7"}
				put(f.t, f.root, map[string]string{dir + xpsRxqs: "0\n", dir + xpsCPUs: "00\n"})
			}
		}
		f.channels = o
	case device.Ring:
		f.ring = o
	case device.Coalesce:
		if f.coalesce = o; o.RxUsecs == 7 {
			return unix.EINVAL
		}
	case device.Affinity:
		for i := range f.irqs[o.Queue] {
			f.irqs[o.Queue][i] = o.CPUs[min(i, len(o.CPUs)-1)]
		}
	}
	return nil
}

func put(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for path, text := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// machine returns a host of eight processors, two threads a core, on two nodes. eth2 is on node 1
// and has four channels. services are systemd's, by name.
func machine(t *testing.T) (h *host, f *fake, services map[string]string) {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{
		"proc/5/comm": "irqbalance\n", "proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t6291456\n", "sys/class/net/eth2/threaded": "0\n",
		"sys/class/net/eth2/carrier": "1\n", "sys/class/net/eth2/device/numa_node": "1\n",
		"sys/devices/system/node/node1/cpulist": "2-3,6-7\n",
	}
	f = &fake{t: t, root: root, channels: device.Channels{Dev: "eth2", Combined: 4},
		ring: device.Ring{Dev: "eth2", RX: 512, TX: 512}, irqs: map[int][]string{},
		coalesce: device.Coalesce{Dev: "eth2", Queue: -1, RxUsecs: 20, TxUsecs: 20, RxAdapt: true, TxAdapt: true}}
	for q := range 4 {
		dir := fmt.Sprintf("sys/class/net/eth2/queues/tx-%d/", q)
		files[dir+xpsRxqs], files[dir+xpsCPUs] = "0\n", fmt.Sprintf("%02x\n", 1<<q)
		f.irqs[q] = []string{fmt.Sprint(q), fmt.Sprint(q + 4)}
	}
	for cpu := range 8 {
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/", cpu)
		files[dir+"topology/thread_siblings_list"] = fmt.Sprintf("%d,%d\n", cpu%4, cpu%4+4)
		files[dir+"power/energy_perf_bias"] = "6\n"
		policy := fmt.Sprintf("sys/devices/system/cpu/cpufreq/policy%d/", cpu)
		files[policy+"scaling_governor"] = "powersave\n"
		files[policy+"energy_performance_preference"] = "balance_performance\n"
	}
	put(t, root, files)
	services = map[string]string{"irqbalance": "active", "firewalld": "inactive"}
	return &host{root: root, card: f, allowed: func() ([]int, error) { return device.ParseCPUList("0-7") },
		systemd: func(args ...string) (string, error) {
			name := strings.TrimSuffix(args[len(args)-1], ".service")
			f.log = append(f.log, args[0]+" "+name)
			switch args[0] {
			case "start":
				services[name] = "active"
				put(t, root, map[string]string{"proc/5/comm": name + "\n"})
			case "stop":
				services[name] = "inactive"
				if err := os.RemoveAll(filepath.Join(root, "proc/5")); err != nil {
					return "", err
				}
			}
			return services[name], nil
		}}, f, services
}

// state lists all values of a machine.
func state(t *testing.T, h *host, f *fake, services map[string]string) string {
	t.Helper()
	out := []string{fmt.Sprint(f.channels, f.ring, f.coalesce, f.irqs, services)}
	err := filepath.WalkDir(h.root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		out = append(out, path+" "+strings.TrimSpace(string(b)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, "\n")
}
