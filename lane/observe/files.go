// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"strings"

	"github.com/niclane/niclane/lane/device"
)

// Names of the files that a plan may write: of the host, of a device, of its queues, of its
// sysctls, of a control group.
var (
	hostFiles   = []string{"/proc/sys/net/core/busy_poll", "/proc/sys/net/core/busy_read"}
	deviceFiles = []string{"threaded", "napi_defer_hard_irqs", "gro_flush_timeout", "tx_queue_len"}
	rxFiles     = []string{"rps_cpus", "rps_flow_cnt"}
	txFiles     = []string{"xps_cpus", "xps_rxqs", "tx_maxrate"}
	confFiles   = []string{"arp_announce", "arp_ignore", "arp_notify"}
	cpusetFiles = []string{"cpuset.cpus", "cpuset.mems"}
)

// formats has the format of each file that is not plain text, by the file's name.
var formats = map[string]device.FileFormat{
	"rps_cpus":          device.FileCPUMask,
	"xps_cpus":          device.FileCPUMask,
	"xps_rxqs":          device.FileCPUMask,
	"smp_affinity_list": device.FileCPUList,
	"cpuset.cpus":       device.FileCPUList,
	"cpuset.mems":       device.FileCPUList,
}

// file reads one file into the state. It leaves out a file that cannot be read: on a device with
// one queue, the kernel refuses to read xps_* (ENOENT), and not every network namespace has the
// host's sysctls.
func (o *observer) file(name string) {
	b, err := o.fs.ReadFile(name)
	if err != nil {
		return
	}
	format, ok := formats[name[strings.LastIndexByte(name, '/')+1:]]
	if !ok {
		format = device.FileText
	}
	o.state.Files[name] = device.File{Path: name, Format: format, Value: strings.TrimSpace(string(b))}
}

func (o *observer) hostFiles(groups []string) {
	for _, f := range hostFiles {
		o.file(f)
	}
	for _, g := range groups {
		if dir := o.state.Cgroups.CpusetDir(g); dir != "" {
			for _, f := range cpusetFiles {
				o.file(dir + "/" + f)
			}
		}
	}
}

func (o *observer) deviceFiles(d *device.Device) {
	dir := "/sys/class/net/" + d.Name + "/"
	for _, f := range deviceFiles {
		o.file(dir + f)
	}
	for q := range d.RxQueues {
		for _, f := range rxFiles {
			o.file(fmt.Sprintf("%squeues/rx-%d/%s", dir, q, f))
		}
	}
	for q := range d.TxQueues {
		for _, f := range txFiles {
			o.file(fmt.Sprintf("%squeues/tx-%d/%s", dir, q, f))
		}
	}
	for _, f := range confFiles {
		o.file("/proc/sys/net/ipv4/conf/" + d.Name + "/" + f)
	}
	for _, i := range d.IRQs {
		o.file(device.IRQPath(i.Number))
	}
}

// queueCounts returns the numbers of queues in use: those that have a directory in sysfs.
func (o *observer) queueCounts(dev string) (rx, tx int, err error) {
	names, err := o.fs.ReadDir("/sys/class/net/" + dev + "/queues")
	if err != nil {
		return 0, 0, err
	}
	for _, n := range names {
		switch {
		case strings.HasPrefix(n, "rx-"):
			rx++
		case strings.HasPrefix(n, "tx-"):
			tx++
		}
	}
	return rx, tx, nil
}
