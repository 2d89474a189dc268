// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/part/thread"
	"github.com/niclane/niclane/internal/kernel/ethtool"
	"github.com/niclane/niclane/internal/kernel/hostfs"
	"github.com/niclane/niclane/internal/kernel/irq"
	"github.com/niclane/niclane/internal/kernel/netdev"
	"github.com/niclane/niclane/internal/systemctl"
	"github.com/niclane/niclane/lane/device"
)

// errLacks says that this host, network namespace or device has no such setting.
var errLacks = errors.New("this host, network namespace or device has no such setting")

// A host reads and writes settings. Tests use another root and another card.
type host struct {
	root    string
	card    card // opened at its first use
	allowed func() ([]int, error)
	systemd func(args ...string) (string, error)
}

// A card is what a network device has beside files.
type card interface {
	Read(o device.Object) (device.Object, error) // nil: there is none
	Write(old, next device.Object) error
	Channels(dev string) (now, most device.Channels, err error)
	Ring(dev string) (now, most device.Ring, err error)
	Close() error
}

func newHost() *host {
	return &host{root: "/", allowed: thread.Allowed, systemd: func(args ...string) (string, error) {
		return systemctl.Run(context.Background(), args...)
	}}
}

func (h *host) path(name string) string { return filepath.Join(h.root, name) }

func (h *host) close() error {
	if h.card == nil {
		return nil
	}
	return h.card.Close()
}

// kernel is the card of a real host.
type kernel struct {
	*ethtool.Client
	irqs  *irq.Client
	files *hostfs.FS
}

func openKernel() (card, error) {
	e, err := ethtool.Open()
	if err != nil {
		return nil, err
	}
	f, err := hostfs.Open(nil)
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	k := &kernel{Client: e, files: f, irqs: &irq.Client{Files: f, Links: e}}
	switch n, err := netdev.Open(e); {
	case err == nil:
		k.irqs.Queues = n
	case !errors.Is(err, fs.ErrNotExist): // without the family, interrupts are known by their names
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

func (k *kernel) Read(o device.Object) (device.Object, error) {
	if a, ok := o.(device.Affinity); ok {
		return k.irqs.Read(a)
	}
	return k.Client.Read(o)
}

func (k *kernel) Write(old, next device.Object) error {
	if a, ok := next.(device.Affinity); ok {
		return k.irqs.Write(old, a)
	}
	return k.Client.Write(old, next)
}

func (k *kernel) Close() error {
	err := errors.Join(k.files.Close(), k.Client.Close())
	if k.irqs.Queues != nil {
		err = errors.Join(err, k.irqs.Queues.Close())
	}
	return err
}

// cards returns the card.
func (h *host) cards() (card, error) {
	if h.card != nil {
		return h.card, nil
	}
	c, err := openKernel()
	if err == nil {
		h.card = c
	}
	return c, err
}

// read returns the setting of i with its present value. If the host does not have it, or lets no
// process write it, the error is errLacks.
func (h *host) read(i item) (item, error) {
	switch {
	case i.object != nil:
		c, err := h.cards()
		if err != nil {
			return i, err
		}
		now, err := c.Read(i.object)
		if err == nil && now == nil {
			err = errLacks
		}
		if err != nil {
			return i, fmt.Errorf("%s: %w", i.what(), err)
		}
		i.object = now
	case i.Unit != "":
		state, err := h.systemd("show", "--property=ActiveState", "--value", i.Unit+".service")
		if err != nil {
			return i, fmt.Errorf("%s: %w", i, err)
		}
		if i.Value = inactive; slices.Contains([]string{"active", "activating", "reloading", "refreshing"}, state) {
			i.Value = active
		}
	default:
		path := h.path(i.File)
		st, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && st.Mode()&0o222 == 0 {
			return i, fmt.Errorf("%s: %w", i.what(), errLacks)
		}
		if err == nil && st.Mode()&0o444 == 0 { // an action, such as net.ipv4.route.flush
			return i, nil
		}
		var b []byte
		if err == nil {
			b, err = os.ReadFile(path)
		}
		if errors.Is(err, unix.ENOENT) { // xps_cpus of a device with one queue
			err = fmt.Errorf("%s: %w", i, errLacks)
		}
		if err != nil {
			return i, err
		}
		i.Value = strings.TrimSpace(string(b))
	}
	return i, nil
}

// isAction reports whether the file of i does something when it is written, and has no value.
func (h *host) isAction(i item) bool {
	st, err := os.Stat(h.path(i.File))
	return i.File != "" && err == nil && st.Mode()&0o444 == 0
}

// write sets the value of i. old is the setting with its present value.
func (h *host) write(old, i item) error {
	var err error
	switch {
	case i.object != nil:
		c, err1 := h.cards()
		if err1 != nil {
			return err1
		}
		err = c.Write(old.object, i.object)
	case i.Unit != "":
		_, err = h.systemd(map[string]string{active: "start", inactive: "stop"}[i.Value], i.Unit+".service")
	default:
		err = os.WriteFile(h.path(i.File), []byte(i.Value+"\n"), 0)
	}
	if err != nil {
		return fmt.Errorf("set %s to %s: %w", i, i.value(), err)
	}
	return nil
}

// runs reports whether a process with this name is visible.
func (h *host) runs(name string) bool {
	files, _ := h.glob("/proc/[0-9]*/comm") // no error: the pattern is constant
	return slices.ContainsFunc(files, func(file string) bool {
		b, err := os.ReadFile(h.path(file))
		return err == nil && strings.TrimSpace(string(b)) == name
	})
}

func (h *host) glob(pattern string) ([]string, error) {
	found, err := filepath.Glob(h.path(pattern))
	for i := range found {
		found[i] = "/" + strings.TrimPrefix(strings.TrimPrefix(found[i], h.root), "/")
	}
	return found, err
}

// energyFiles returns the files of the processors' energy preference: EPP and EPB.
func (h *host) energyFiles() ([]string, error) {
	a, err := h.glob("/sys/devices/system/cpu/cpufreq/policy*/energy_performance_preference")
	if err != nil {
		return nil, err
	}
	b, err := h.glob("/sys/devices/system/cpu/cpu[0-9]*/power/energy_perf_bias")
	if err == nil && len(a)+len(b) == 0 {
		err = errors.New("energy: these processors have no energy preference (energy_performance_preference, " +
			"energy_perf_bias)")
	}
	return append(a, b...), err
}

// Files of a transmit queue.
const (
	xpsCPUs = "xps_cpus"
	xpsRxqs = "xps_rxqs"
)

func (h *host) xps(dev string, queue int, file string) string {
	return fmt.Sprintf("/sys/class/net/%s/queues/tx-%d/%s", dev, queue, file)
}

// transmitQueues returns the numbers of a device's transmit queues, ascending.
func (h *host) transmitQueues(dev string) ([]int, error) {
	dirs, err := h.glob("/sys/class/net/" + dev + "/queues/tx-*")
	if err != nil {
		return nil, err
	}
	if len(dirs) == 0 {
		return nil, fmt.Errorf("%s: no transmit queues, want the name of a network device", dev)
	}
	var out []int
	for _, dir := range dirs {
		n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "tx-"))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		out = append(out, n)
	}
	slices.Sort(out)
	return out, nil
}

// carrier returns "1" if a device has its link, "0" if not, and "" if it is down or unknown.
func (h *host) carrier(dev string) string {
	b, _ := os.ReadFile(h.path("/sys/class/net/" + dev + "/carrier"))
	return strings.TrimSpace(string(b))
}

// processors returns the processors of a device's NUMA node, or all processors if its node is not
// known or not wanted.
func (h *host) processors(dev string, node bool) ([]int, error) {
	b, err := os.ReadFile(h.path("/sys/class/net/" + dev + "/device/numa_node"))
	n, err1 := strconv.Atoi(strings.TrimSpace(string(b)))
	if !node || cmp.Or(err, err1) != nil || n < 0 {
		return h.allowed()
	}
	text, err := os.ReadFile(h.path(fmt.Sprintf("/sys/devices/system/node/node%d/cpulist", n)))
	if err != nil {
		return nil, err
	}
	return device.ParseCPUList(string(text))
}

// cores returns the first processor of each core among cpus.
func (h *host) cores(cpus []int) (out []int, err error) {
	for _, cpu := range cpus {
		b, err := os.ReadFile(h.path(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu)))
		if err != nil {
			return nil, err
		}
		siblings, err := device.ParseCPUList(string(b))
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(siblings, func(s int) bool { return slices.Contains(out, s) }) {
			out = append(out, cpu)
		}
	}
	return out, nil
}
