// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/niclane/niclane/internal/kernel/ethtool"
	"github.com/niclane/niclane/lane/device"
)

// Valid names of a sysctl, a network device, a governor and a service.
var (
	sysctl   = regexp.MustCompile(`^net\.[a-z0-9_]+(\.[a-z0-9_]+)+$`)
	network  = regexp.MustCompile(`^[^/\s.][^/\s]{0,14}$`)
	governor = regexp.MustCompile(`^[a-z]{1,15}$`)
	service  = regexp.MustCompile(`^[a-z0-9][a-zA-Z0-9_@.-]{0,63}$`)
)

// energies are the values of Config.Energy, with the number of each in energy_perf_bias
// (arch/x86/kernel/cpu/intel_epb.c).
var energies = map[string]string{"performance": "0", "balance_performance": "4", "balance_power": "8", "power": "15"}

// Energies returns the values of Config.Energy.
func Energies() []string {
	return []string{"performance", "balance_performance", "balance_power", "power"}
}

// valid checks what a caller could use to reach other files, and what contradicts itself.
func (c Config) valid() error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	for _, name := range slices.Sorted(maps.Keys(c.Sysctls)) {
		if !sysctl.MatchString(name) {
			bad("sysctl %q: want one below net", name)
		}
	}
	for _, dev := range c.Devices {
		if !network.MatchString(dev) {
			bad("device %q: want the name of a network device", dev)
		}
	}
	if len(c.Devices) == 0 && c.OfDevice() {
		bad("no devices: want the network devices to tune")
	}
	if n, err := strconv.Atoi(c.Channels); c.Channels != "" && c.Channels != Cores && c.Channels != Processors &&
		(err != nil || n < 1) {
		bad("channels %q: want a number from 1, %s or %s", c.Channels, Cores, Processors)
	}
	if c.RxRing < 0 || c.TxRing < 0 {
		bad("rings of %d and %d: want numbers of descriptors", c.RxRing, c.TxRing)
	}
	if c.Interrupts != "" && c.Interrupts != Node && c.Interrupts != All {
		if _, err := device.ParseCPUList(c.Interrupts); err != nil {
			bad("interrupts %q: %w; want processors, %s or %s", c.Interrupts, err, Node, All)
		}
	}
	if c.SendByProcessor && c.Interrupts == "" {
		bad("transmit queues by processor without interrupts: want the processors of the interrupts too")
	}
	if c.SendByProcessor && c.Symmetric {
		bad("transmit queues by processor and by receive queue: want one of them; the kernel prefers the second")
	}
	if c.Governor != "" && !governor.MatchString(c.Governor) {
		bad("governor %q: want a word such as performance", c.Governor)
	}
	if c.Energy != "" && energies[c.Energy] == "" {
		bad("energy %q: want one of %s", c.Energy, strings.Join(Energies(), ", "))
	}
	for _, name := range c.Stop {
		if !service.MatchString(name) {
			bad("service %q: want the name of a service of systemd without .service", name)
		}
	}
	return errors.Join(errs...)
}

// OfDevice reports whether c changes network devices.
func (c Config) OfDevice() bool {
	return c.Symmetric || c.NAPIThreads || c.Channels != "" || c.RxRing > 0 || c.TxRing > 0 || c.coalesces() ||
		c.Interrupts != "" || c.SendByProcessor
}

// A stage returns settings. A later stage needs the settings of those before it.
type stage func(h *host) ([]item, error)

// stages returns the settings in the order in which they are made. irqbalance stops before
// interrupts get their processors, and channels come before the settings of queues.
func (c Config) stages() []stage {
	return []stage{c.machine, c.rings, c.channels, c.queues}
}

// machine returns the settings of the machine and of the network namespace.
func (c Config) machine(h *host) (out []item, err error) {
	for _, name := range c.Stop {
		out = append(out, item{Unit: name, Value: inactive})
	}
	// Before the governor: with the governor performance, intel_pstate refuses another preference
	// (intel_pstate.c: intel_pstate_set_energy_pref_index), also when both are restored in reverse.
	if c.Energy != "" {
		files, err := h.energyFiles()
		if err != nil {
			return nil, err
		}
		for _, path := range files {
			value := c.Energy
			if filepath.Base(path) == "energy_perf_bias" {
				value = energies[c.Energy]
			}
			out = append(out, item{File: path, Value: value})
		}
	}
	if c.Governor != "" {
		files, err := h.glob("/sys/devices/system/cpu/cpufreq/policy*/scaling_governor")
		if err != nil {
			return nil, err
		}
		if len(files) == 0 {
			return nil, errors.New("governor " + c.Governor + ": this host has no cpufreq")
		}
		for _, path := range files {
			out = append(out, item{File: path, Value: c.Governor})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Sysctls)) {
		out = append(out, item{File: "/proc/sys/" + strings.ReplaceAll(name, ".", "/"), Value: c.Sysctls[name]})
	}
	return out, nil
}

// each returns the settings that of returns for each device.
func (c Config) each(of func(dev string) ([]item, error)) (out []item, err error) {
	for _, dev := range c.Devices {
		more, err := of(dev)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, nil
}

// rings returns the sizes of the devices' rings. If a device lacks them, the item has the zero value:
// to read it is then an error.
func (c Config) rings(h *host) ([]item, error) {
	if c.RxRing == 0 && c.TxRing == 0 {
		return nil, nil
	}
	return c.each(func(dev string) ([]item, error) {
		card, err := h.cards()
		if err != nil {
			return nil, err
		}
		now, most, err := card.Ring(dev)
		if err != nil {
			return []item{{object: device.Ring{Dev: dev}}}, lacking(err)
		}
		for _, x := range []struct {
			what       string
			want, most int
			now        *int
		}{{"receive", c.RxRing, most.RX, &now.RX}, {"transmit", c.TxRing, most.TX, &now.TX}} {
			if x.want > x.most {
				return nil, fmt.Errorf("%s ring of %d: %s has at most %d", x.what, x.want, dev, x.most)
			}
			if x.want > 0 {
				*x.now = x.want
			}
		}
		return []item{{object: now}}, nil
	})
}

// lacking returns nil for an error that says that the device lacks a setting.
func lacking(err error) error {
	if ethtool.NotSupported(err) {
		return nil
	}
	return err
}

func (c Config) channels(h *host) ([]item, error) {
	if c.Channels == "" {
		return nil, nil
	}
	return c.each(func(dev string) ([]item, error) {
		card, err := h.cards()
		if err != nil {
			return nil, err
		}
		now, most, err := card.Channels(dev)
		if err != nil {
			return []item{{object: device.Channels{Dev: dev}}}, lacking(err)
		}
		n, err := c.channelsOf(h, dev, max(most.Combined, min(most.RX, most.TX)))
		if err != nil {
			return nil, err
		}
		if most.Combined > 0 {
			now.Combined, now.RX, now.TX = n, 0, 0
		} else {
			now.RX, now.TX = n, n
		}
		return []item{{object: now}}, nil
	})
}

// channelsOf returns how many channels a device gets, of at most limit.
func (c Config) channelsOf(h *host, dev string, limit int) (int, error) {
	if n, err := strconv.Atoi(c.Channels); err == nil {
		if n > limit {
			return 0, fmt.Errorf("%d channels: %s has at most %d", n, dev, limit)
		}
		return n, nil
	}
	cpus, err := c.processors(h, dev)
	if err != nil {
		return 0, err
	}
	if c.Channels == Cores {
		cpus, err = h.cores(cpus)
	}
	return min(len(cpus), limit), err
}

// processors returns the processors of Interrupts.
func (c Config) processors(h *host, dev string) ([]int, error) {
	if c.Interrupts != "" && c.Interrupts != Node && c.Interrupts != All {
		return device.ParseCPUList(c.Interrupts)
	}
	return h.processors(dev, c.Interrupts != All)
}

func (c Config) coalesces() bool {
	return c.RxUsecs != nil || c.TxUsecs != nil || c.RxAdapt != nil || c.TxAdapt != nil
}

// queues returns the settings of a device's moderation and of its queues.
func (c Config) queues(h *host) ([]item, error) {
	return c.each(func(dev string) (out []item, err error) {
		if c.coalesces() {
			i := item{object: device.Coalesce{Dev: dev, Queue: -1}}
			now, err := h.read(i)
			if err == nil {
				i.object = c.moderated(now.object.(device.Coalesce))
			} else if !errors.Is(err, errLacks) {
				return nil, err
			}
			out = append(out, i)
		}
		if c.NAPIThreads {
			out = append(out, item{File: "/sys/class/net/" + dev + "/threaded", Value: "1"})
		}
		if !c.Symmetric && c.Interrupts == "" {
			return out, nil
		}
		queues, err := h.transmitQueues(dev)
		if err != nil {
			return nil, err
		}
		var cpus []int
		if c.Interrupts != "" {
			if !c.Lenient && h.runs("irqbalance") {
				return nil, errors.New("interrupts: irqbalance runs and would move them; want it among the " +
					"stopped services")
			}
			if cpus, err = c.processors(h, dev); err != nil {
				return nil, err
			}
		}
		for _, q := range queues {
			if c.Symmetric {
				out = append(out, item{File: h.xps(dev, q, xpsRxqs), Value: device.FormatMask([]int{q})})
			}
			if len(cpus) == 0 {
				continue
			}
			cpu := cpus[q%len(cpus)]
			out = append(out, item{object: device.Affinity{Dev: dev, Queue: q, CPUs: []string{strconv.Itoa(cpu)}}})
			if c.SendByProcessor {
				out = append(out, item{File: h.xps(dev, q, xpsCPUs), Value: device.FormatMask([]int{cpu})})
			}
		}
		return out, nil
	})
}

// moderated returns the moderation of a device with the changes of c.
func (c Config) moderated(now device.Coalesce) device.Coalesce {
	set(&now.RxUsecs, c.RxUsecs)
	set(&now.TxUsecs, c.TxUsecs)
	set(&now.RxAdapt, c.RxAdapt)
	set(&now.TxAdapt, c.TxAdapt)
	return now
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}
