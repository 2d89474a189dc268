// SPDX-License-Identifier: Apache-2.0

// Package hardware reads what a machine is made of, from sysfs, procfs and the SMBIOS tables, and
// which services on it disturb a measurement. It guesses nothing: what it cannot read is unknown,
// with the reason.
package hardware

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/niclane/niclane/lane/device"
)

// Read describes this machine and its network namespace.
func Read() *device.Hardware { return read(root("/"), tables) }

// A root is the directory that contains sysfs, procfs and /etc. Tests use another than "/".
type root string

func (r root) path(name string) string { return filepath.Join(string(r), name) }

// line returns a file's first line.
func (r root) line(name string) (string, error) {
	b, err := os.ReadFile(r.path(name))
	first, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(first), err
}

// word returns a file's first line, "" if it cannot be read.
func (r root) word(name string) string {
	s, _ := r.line(name)
	return s
}

func (r root) glob(pattern string) []string {
	found, _ := filepath.Glob(r.path(pattern)) // no error: the patterns are constant
	return found
}

// A reader collects the fields of a description.
type reader struct {
	root
	*device.Hardware
}

// or keeps a value, or the reason why the field named key is unknown.
func (r *reader) or(key string, to *string, value string, err error) {
	switch {
	case err != nil:
		r.Unknown[key] = reason(err)
	case value == "":
		r.Unknown[key] = "the kernel reports nothing"
	default:
		*to = value
	}
}

// reason returns the text of an error for a reader who does not know this machine.
func reason(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return fmt.Sprintf("%s: %v", p.Path, p.Err)
	}
	return err.Error()
}

// Directories of sysfs.
const (
	cpus = "/sys/devices/system/cpu/"
	dmi  = "/sys/class/dmi/id/"
)

func read(at root, tables func() ([]string, error)) *device.Hardware {
	r := &reader{at, &device.Hardware{Unknown: map[string]string{}}}
	r.processors()
	r.names()
	r.memory()
	r.drives()
	r.links()
	r.energy()
	r.services(tables)
	if len(r.Unknown) == 0 {
		r.Unknown = nil
	}
	return r.Hardware
}

func (r *reader) processors() {
	online, err := r.list(cpus + "online")
	if err != nil {
		r.Unknown["threads"], r.Unknown["sockets"], r.Unknown["cores"] = reason(err), reason(err), reason(err)
	}
	r.Threads = len(online)
	packages, cores := map[string]bool{}, map[string]bool{}
	for _, cpu := range online {
		dir := fmt.Sprintf("%scpu%d/topology/", cpus, cpu)
		p, err1 := r.line(dir + "physical_package_id")
		c, err2 := r.line(dir + "thread_siblings_list")
		if err := errors.Join(err1, err2); err != nil || p == "-1" {
			why := "the kernel knows no sockets"
			if err != nil {
				why = reason(cmp.Or(err1, err2))
			}
			r.Unknown["sockets"], r.Unknown["cores"] = why, why
			packages, cores = nil, nil
			break
		}
		packages[p], cores[c] = true, true
	}
	r.Sockets, r.Cores = len(packages), len(cores)
	smt, err := r.line(cpus + "smt/control")
	r.or("smt", &r.SMT, smt, err)
	r.turbo()
	nodes, err := r.list("/sys/devices/system/node/has_cpu")
	if r.Nodes = len(nodes); err != nil {
		r.Unknown["numaNodes"] = reason(err)
	}
	microcode, err := r.field("/proc/cpuinfo", "microcode")
	r.or("microcode", &r.Microcode, microcode, err)
}

func (r *reader) turbo() {
	off, on := map[string]string{"1": "off", "0": "on"}, map[string]string{"1": "on", "0": "off"}
	if v, err := r.line(cpus + "intel_pstate/no_turbo"); err == nil {
		r.or("turbo", &r.Turbo, off[v], nil)
		return
	}
	v, err := r.line(cpus + "cpufreq/boost")
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.New("the kernel has no intel_pstate/no_turbo and no cpufreq/boost here")
	}
	r.or("turbo", &r.Turbo, on[v], err)
}

// list reads a list of processors or nodes.
func (r *reader) list(name string) ([]int, error) {
	text, err := r.line(name)
	if err != nil {
		return nil, err
	}
	return device.ParseCPUList(text)
}

// field returns the value of the first line "name: value" of a file, "" without such a line.
func (r *reader) field(file, name string) (string, error) {
	b, err := os.ReadFile(r.path(file))
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v), nil
		}
	}
	return "", err
}

// names reads the names that the firmware gives the machine and itself.
func (r *reader) names() {
	for key, x := range map[string]struct {
		to    *string
		files []string
	}{"system": {&r.System, []string{"sys_vendor", "product_name"}},
		"bios": {&r.BIOS, []string{"bios_vendor", "bios_version", "bios_date"}}} {
		var parts []string
		var failed error
		for _, file := range x.files {
			part, err := r.line(dmi + file)
			failed = cmp.Or(failed, err)
			if part != "" {
				parts = append(parts, part)
			}
		}
		if len(parts) > 0 {
			failed = nil
		}
		r.or(key, x.to, strings.Join(parts, " "), failed)
	}
}

func (r *reader) memory() {
	b, err := os.ReadFile(r.path("/sys/firmware/dmi/tables/DMI"))
	if err == nil {
		r.DIMMs, err = dimms(b)
	}
	switch {
	case err != nil:
		r.Unknown["dimms"] = reason(err)
	case len(r.DIMMs) == 0:
		r.Unknown["dimms"] = "the firmware lists no memory modules"
	}
}

// drives reads the block devices that have hardware: not loop devices, zram, partitions or RAID.
func (r *reader) drives() {
	for _, dir := range r.glob("/sys/block/*/device") {
		name := filepath.Base(filepath.Dir(dir))
		at := "/sys/block/" + name + "/"
		text := name + ": " + cmp.Or(strings.Join(strings.Fields(r.word(at+"device/model")), " "), "unknown model")
		if sectors, err := strconv.ParseInt(r.word(at+"size"), 10, 64); err == nil && sectors > 0 {
			text += fmt.Sprintf(", %d GB", sectors*512/1e9)
		}
		if r.word(at+"queue/rotational") == "1" {
			text += ", rotational"
		}
		r.Drives = append(r.Drives, text)
	}
	if len(r.Drives) == 0 {
		r.Unknown["drives"] = "no block device with hardware in /sys/block"
	}
}

// links reads the PCIe link of each network card.
func (r *reader) links() {
	r.PCIe = map[string]string{}
	for _, file := range r.glob("/sys/class/net/*/device/current_link_speed") {
		dir := filepath.Dir(file)
		dev := filepath.Base(filepath.Dir(dir))
		at := "/sys/class/net/" + dev + "/device/"
		link := func(of string) string { return r.word(at+of+"_link_speed") + " x" + r.word(at+of+"_link_width") }
		r.PCIe[dev] = link("current") + ", of at most " + link("max")
	}
	if len(r.PCIe) == 0 {
		r.PCIe = nil
	}
}
