// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// FileFormat says how two values of a file are compared.
type FileFormat string

// The formats of the files a plan writes.
const (
	// FileText compares after trimming white space.
	FileText FileFormat = "text"
	// FileCPUMask is a hexadecimal mask in groups of 32 bits: "00000000,0000000f".
	FileCPUMask FileFormat = "cpumask"
	// FileCPUList is a list of ranges: "0-3,8". Empty means none.
	FileCPUList FileFormat = "cpulist"
)

// A File is a file of sysfs, procfs (sysctl, IRQ affinity) or a control group. niclane never
// creates or removes such a file. An absent File does not exist in the kernel.
type File struct {
	Path   string     `json:"path"`
	Format FileFormat `json:"format"`
	Value  string     `json:"value"`
}

// Kind implements Object.
func (File) Kind() string { return "file" }

// Key implements Object.
func (f File) Key() string { return "file" + f.Path }

// Brief implements Object.
func (f File) Brief() string { return fmt.Sprintf("%q", f.Value) }

func (f File) commands(c Change) []string {
	if c.New == nil {
		return nil
	}
	return one("echo " + f.written() + "> " + f.Path)
}

// queue returns the queue that the file belongs to in sysfs, -1 if none.
func (f File) queue() int {
	rest, ok := strings.CutPrefix(f.Path, "/sys/class/net/")
	if !ok {
		return -1
	}
	_, rest, _ = strings.Cut(rest, "/queues/")
	dir, _, _ := strings.Cut(rest, "/")
	_, number, _ := strings.Cut(dir, "-")
	q, err := strconv.Atoi(number)
	if err != nil {
		return -1
	}
	return q
}

func (f File) equal(o Object) bool {
	b, ok := o.(File)
	return ok && f.Path == b.Path && normalFile(f.Format, f.Value) == normalFile(f.Format, b.Value)
}

func (s *State) putFile(f File, next Object) {
	if next == nil {
		delete(s.Files, f.Path)
		return
	}
	s.Files[f.Path] = f
	s.threadAll(f)
}

func (s *State) files(yield func(Object)) {
	for _, f := range s.Files {
		if !s.gone(f) {
			yield(f)
		}
	}
}

// normalFile returns the value v in its shortest form, so that values with the same meaning are
// equal.
func normalFile(f FileFormat, v string) string {
	v = strings.TrimSpace(v)
	switch f {
	case FileCPUMask:
		n, ok := new(big.Int).SetString(strings.ReplaceAll(v, ",", ""), 16)
		if ok {
			return n.Text(16)
		}
	case FileCPUList:
		if ids, err := ParseCPUList(v); err == nil {
			return FormatCPUList(ids)
		}
	}
	return v
}

// IsXPS reports whether a file sets a device's transmit packet steering.
func IsXPS(path, dev string) bool {
	queue, ok := strings.CutPrefix(path, "/sys/class/net/"+dev+"/queues/tx-")
	return ok && (strings.HasSuffix(queue, "/xps_cpus") || strings.HasSuffix(queue, "/xps_rxqs"))
}

// ThreadsAll reports whether f is the sysfs file "threaded" of the device, which sets the thread
// mode of all its NAPIs. It also returns the mode that f sets, "on" or "off".
func (d *Device) ThreadsAll(f File) (threaded string, is bool) {
	if f.Path != "/sys/class/net/"+d.Name+"/threaded" {
		return "", false
	}
	if normalFile(f.Format, f.Value) == "0" {
		return "off", true
	}
	return "on", true
}

// threadAll sets the thread mode of all NAPIs of a device, as the kernel does when f, the
// device's sysfs file "threaded", is written.
func (s *State) threadAll(f File) {
	for i := range s.Devices {
		d := &s.Devices[i]
		on, is := d.ThreadsAll(f)
		for j := range d.NAPIs {
			if is {
				n := d.NAPIs[j].Config
				n.Threaded = on
				s.putNAPI(n, n)
			}
		}
	}
}

// clearXPS clears the device's transmit packet steering (XPS), as the kernel does when an mqprio
// is made or removed.
func (s *State) clearXPS(dev string) {
	for path, f := range s.Files {
		if IsXPS(path, dev) && normalFile(f.Format, f.Value) != "0" {
			f.Value = "0"
			s.Files[path] = f
		}
	}
}

// gone reports whether a file belongs to a queue that its device does not have.
func (s *State) gone(f File) bool {
	rest, ok := strings.CutPrefix(f.Path, "/sys/class/net/")
	if !ok {
		return false
	}
	dev, _, _ := strings.Cut(rest, "/")
	q := f.queue()
	d := s.Device(dev)
	if q < 0 || d == nil {
		return false
	}
	if strings.Contains(f.Path, "/queues/tx-") {
		return q >= d.TxQueues
	}
	return q >= d.RxQueues
}

// written returns the value as an argument of echo, with a space after it. An empty mask becomes
// 0. An empty list stays empty, because 0 would mean processor 0.
func (f File) written() string {
	switch {
	case f.Value != "":
		return f.Value + " "
	case f.Format == FileCPUList:
		return ""
	}
	return "0 "
}
