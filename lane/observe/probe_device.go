// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/dcb"
	"github.com/niclane/niclane/lane/device"
)

// probeDevice sets the capabilities of a device, after its state was read.
func (o *observer) probeDevice(d *device.Device, r reading) {
	o.probeSteering(d, r)
	o.probeOffloads(d)
	o.probeFiles(d)
	o.probeNAPIs(d)
	o.probeSettings(d)
	o.probeDCB(d)
}

// probeDCB reads what the device trusts. It is here and not in device, because no plan depends on it.
func (o *observer) probeDCB(d *device.Device) {
	dcb, err := dcb.Get(o.route, d.Name)
	d.DCB, d.Capabilities[device.CapDCB] = dcb, supported(err, "the driver has dcbnl")
}

func yes(format string, args ...any) device.Finding {
	return device.Finding{Answer: device.Yes, Why: fmt.Sprintf(format, args...)}
}

func no(format string, args ...any) device.Finding {
	return device.Finding{Answer: device.No, Why: fmt.Sprintf(format, args...)}
}

func unknown(format string, args ...any) device.Finding {
	return device.Finding{Answer: device.Unknown, Why: fmt.Sprintf(format, args...)}
}

// supported returns the finding for a request to the driver. Only EOPNOTSUPP means no.
func supported(err error, why string) device.Finding {
	return answer(err, why, unix.EOPNOTSUPP)
}

func (o *observer) probeSettings(d *device.Device) {
	caps := d.Capabilities
	caps[device.CapChannelsSet] = supported(o.ethtool.CanSetChannels(d.Name), "a request without a change is accepted")
	caps[device.CapCoalesce] = supported(o.ethtool.CanSetCoalesce(d.Name), "a request without a change is accepted")
	_, err := o.ethtool.QueueCoalesce(d.Name, 0)
	caps[device.CapQueueCoalesce] = supported(err, "queue 0 can be read (ETHTOOL_PERQUEUE)")
}

func (o *observer) probeFiles(d *device.Device) {
	caps := d.Capabilities
	readable := func(name string) device.Finding {
		path := "/sys/class/net/" + d.Name + "/" + name
		_, err := o.fs.ReadFile(path)
		return answer(bare(err), name+" is there", unix.ENOENT, unix.EOPNOTSUPP)
	}
	caps[device.CapXPS] = readable("queues/tx-0/xps_cpus")
	caps[device.CapXPSRxqs] = readable("queues/tx-0/xps_rxqs")
	caps[device.CapRPS] = readable("queues/rx-0/rps_cpus")
	for _, c := range []device.Capability{device.CapXPS, device.CapXPSRxqs} {
		if caps[c].Answer == device.No && d.TxQueues == 1 {
			caps[c] = no("one transmit queue: %s", caps[c].Why)
		}
	}
	caps[device.CapTxMaxrate] = o.probeMaxrate(d)
	caps[device.CapThreadedDev] = readable("threaded")
	if caps[device.CapThreadedDev].Answer == device.Yes {
		caps[device.CapThreadedDev] = o.probeThreaded(d)
	}
}

// probeThreaded returns the finding for a device with the sysfs file threaded. While the device
// has no NAPI, the kernel refuses to write the file (EOPNOTSUPP). A write of the present value
// shows that. Before Linux 6.17, it changes nothing; later, it would reset the threads of single
// NAPIs. So probeThreaded writes only if the kernel has no napi-get.
func (o *observer) probeThreaded(d *device.Device) device.Finding {
	none := unknown("threaded is there, but the device has no NAPI now")
	if o.noGenl == nil {
		if len(d.NAPIs) == 0 {
			return none
		}
		return yes("threaded is there")
	}
	path := "/sys/class/net/" + d.Name + "/threaded"
	err := o.fs.WriteFile(path, o.state.Files[path].Value)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return none
	}
	return answer(bare(err), "the present value was accepted")
}

// probeMaxrate writes "no limit" to transmit queue 0 if it has no limit. If the driver supports
// limits, the kernel calls the driver; if not, it returns EOPNOTSUPP (net/core/net-sysfs.c:
// tx_maxrate_store).
func (o *observer) probeMaxrate(d *device.Device) device.Finding {
	path := "/sys/class/net/" + d.Name + "/queues/tx-0/tx_maxrate"
	f, ok := o.state.Files[path]
	if !ok {
		return no("no queues/tx-0/tx_maxrate")
	}
	if f.Value != "0" {
		return yes("tx-0 has a limit of %s Mbit/s", f.Value)
	}
	return answer(bare(o.fs.WriteFile(path, f.Value)), "tx-0 has no limit, and a write of that was accepted",
		unix.EOPNOTSUPP)
}

// bare returns the errno of a file's error, without the file's name: the capability names the
// file.
func bare(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

func (o *observer) probeNAPIs(d *device.Device) {
	caps := d.Capabilities
	switch {
	case o.noGenl != nil:
		caps[device.CapNAPIs] = unknown("napi-get: %v", o.noGenl)
		caps[device.CapQueueNAPI] = unknown("queue-get: %v", o.noGenl)
		return
	case len(d.NAPIs) > 0:
		caps[device.CapNAPIs] = yes("napi-get shows %d", len(d.NAPIs))
	case !d.Up:
		caps[device.CapNAPIs] = unknown("the device is down")
	default:
		caps[device.CapNAPIs] = no("napi-get shows none")
		if q, ok := device.FindQuirk(device.QuirkNAPINeedsGRO, d.Driver, o.state.Kernel.Release); ok &&
			!d.Features["rx-gro"].On {
			caps[device.CapNAPIs] = unknown("none now: %s has NAPIs only with rx-gro on or native XDP (%s)", d.Driver,
				q.Source)
		}
	}
	caps[device.CapQueueNAPI] = o.queueNAPI(d)
}

func (o *observer) queueNAPI(d *device.Device) device.Finding {
	rx, known := 0, 0
	reported := false // a quirk knows the NAPIs of receive queues only
	for _, q := range d.Queues {
		reported = reported || q.Type == "tx" && q.NAPI != 0
		if q.Type == "rx" {
			rx++
			if q.NAPI != 0 {
				known++
			}
		}
	}
	q, byQuirk := device.FindQuirk(device.QuirkNAPIOrder, d.Driver, o.state.Kernel.Release)
	switch {
	case rx > 0 && known == rx && byQuirk && !reported:
		return yes("IDs ascend with the queue: %s", q.Source)
	case rx > 0 && known == rx:
		return yes("queue-get names the NAPI of every receive queue")
	case len(d.NAPIs) == 0 && byQuirk:
		return unknown("no NAPI now; with NAPIs, IDs ascend with the queue: %s", q.Source)
	case len(d.NAPIs) == 0:
		return unknown("the device has no NAPI now")
	}
	return no("queue-get names the NAPI of %d of %d receive queues", known, rx)
}

// Bits of the attribute NETDEV_A_DEV_XDP_FEATURES (linux/netdev.h).
const (
	xdpBasic = 1
	xdpFrags = 1 << 5 // NETDEV_XDP_ACT_RX_SG
)

func (o *observer) probeOffloads(d *device.Device) {
	caps := d.Capabilities
	if len(d.IRQs) > 0 {
		caps[device.CapSetAffinityIRQ] = yes("%d IRQs", len(d.IRQs))
	} else {
		caps[device.CapSetAffinityIRQ] = no("no IRQ of its own in napi-get or /proc/interrupts")
	}
	o.probeXDP(d)
	caps[device.CapMqprioChannel] = unknown("cannot be tried without replacing the root qdisc")
	if q, ok := device.FindQuirk(device.QuirkMqprioModeIgnored, d.Driver, o.state.Kernel.Release); ok {
		caps[device.CapMqprioChannel] = no("the driver treats mode channel as DCB: %s", q.Source)
	}
	limits, known := device.FindClassLimits(d.Driver)
	if known {
		caps[device.CapMqprioChannel] = yes("by the driver's source: %s", limits.Source)
	}
	caps[device.CapClassGuarantee] = unknown("not known for this driver")
	if known && limits.Guarantee {
		caps[device.CapClassGuarantee] = yes("by the driver's source: %s", limits.Source)
	} else if known {
		caps[device.CapClassGuarantee] = no("the driver refuses it: %s", limits.Source)
	}
	caps[device.CapHTBOffload] = probeHTBOffload(d)
	switch s, ok := d.Features["hw-tc-offload"]; {
	case !ok:
		caps[device.CapFlowerHwTC] = unknown("no feature hw-tc-offload")
	case s.Fixed && !s.On:
		caps[device.CapFlowerHwTC] = no("hw-tc-offload is off [fixed]")
	case known && limits.Receive:
		caps[device.CapFlowerHwTC] = yes("by the driver's source: %s", limits.Source)
	case known:
		caps[device.CapFlowerHwTC] = no("the driver's classes are only for transmit: %s", limits.Source)
	default:
		caps[device.CapFlowerHwTC] = unknown("hw-tc-offload is there; only an added filter shows whether the card " +
			"honours hw_tc")
	}
}

func (o *observer) probeXDP(d *device.Device) {
	var bits uint64
	var err error
	if o.netdev != nil {
		bits, err = o.netdev.Conn.XDPFeatures(d.Index)
	}
	for c, bit := range map[device.Capability]uint64{device.CapXDPNative: xdpBasic, device.CapXDPFrags: xdpFrags} {
		switch {
		case o.netdev == nil:
			d.Capabilities[c] = unknown("dev-get: %v", o.noGenl)
		case err != nil:
			d.Capabilities[c] = unanswered(err)
		case bits&bit == 0:
			d.Capabilities[c] = no("xdp-features 0x%x", bits)
		default:
			d.Capabilities[c] = yes("xdp-features 0x%x", bits)
		}
	}
}

// probeHTBOffload answers from the list of known drivers. It cannot try: an offloaded htb would
// replace the root qdisc, and the kernel does not say which cards support one. Other conditions
// of the card (mlx5: a firmware that supports it, no SR-IOV) show only when the qdisc is made.
func probeHTBOffload(d *device.Device) device.Finding {
	limits, known := device.FindOffloadLimits(d.Driver)
	switch s, ok := d.Features["hw-tc-offload"]; {
	case !ok:
		return no("no feature hw-tc-offload")
	case s.Fixed && !s.On:
		return no("hw-tc-offload is off [fixed]")
	case known:
		return yes("by the driver's source: %s", limits.Source)
	}
	return unknown("cannot be tried without replacing the root qdisc")
}

func (o *observer) probeSteering(d *device.Device, r reading) {
	caps := d.Capabilities
	if d.Emulated {
		caps[device.CapRSSTable] = yes("emulated card: a table of %d entries", tableSize(d.RSS))
		caps[device.CapRSSContexts] = yes("emulated card: %d beside the default", d.MaxContexts)
		caps[device.CapRules] = yes("emulated card: a table of %d rules", d.RuleCapacity)
		caps[device.CapRuleToContext] = yes("emulated card")
		return
	}
	if r.rss == nil && len(d.RSS) == 0 {
		caps[device.CapRSSTable] = no("the device has no indirection table")
	} else {
		caps[device.CapRSSTable] = supported(r.rss, "a table of "+strconv.Itoa(tableSize(d.RSS))+" entries")
	}
	caps[device.CapRSSContexts] = supported(o.ethtool.HasContexts(d.Name),
		"the driver knows contexts beside the default; how many fit is not known")
	caps[device.CapRules] = supported(r.rules, fmt.Sprintf("a table of %d rules", d.RuleCapacity))
	if q, ok := device.FindQuirk(device.QuirkRulesNoPorts, d.Driver, o.state.Kernel.Release); ok && r.rules == nil {
		caps[device.CapRules] = no("rules match no addresses or ports: %s", q.Source)
	}
	switch a, b := caps[device.CapRSSContexts], caps[device.CapRules]; {
	case a.Answer == device.No:
		caps[device.CapRuleToContext] = no("no contexts: %s", a.Why)
	case b.Answer == device.No:
		caps[device.CapRuleToContext] = no("no rules: %s", b.Why)
	case a.Answer == device.Yes && b.Answer == device.Yes:
		caps[device.CapRuleToContext] = yes("contexts and rules are there")
	default:
		caps[device.CapRuleToContext] = unknown("contexts: %s; rules: %s", a.Why, b.Why)
	}
}

func tableSize(tables []device.RSSTable) int {
	if len(tables) == 0 {
		return 0
	}
	return len(tables[0].Queues)
}
