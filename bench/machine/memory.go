// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// Memory counts the kernel's search for free pages on all NUMA nodes (/proc/vmstat), and the reads
// from disks (/proc/diskstats).
type Memory struct {
	// Scanned are the pages scanned by kswapd and by allocating threads. Stalls is how often an
	// allocating thread had to scan.
	Scanned uint64 `json:"pagesScanned"`
	Stalls  uint64 `json:"allocationStalls"`
	// DiskRead is how many bytes were read from all whole disks. Partitions and stacked devices
	// are not counted in addition.
	DiskRead uint64 `json:"diskReadBytes"`
}

func readMemory() (m Memory, err error) {
	f, err := os.Open("/proc/vmstat")
	if err != nil {
		return m, err
	}
	defer f.Close()
	if err := m.vmstat(f); err != nil {
		return m, fmt.Errorf("/proc/vmstat: %w", err)
	}
	d, err := os.Open("/proc/diskstats")
	if err != nil {
		return m, nil // a kernel without block devices
	}
	defer d.Close()
	if m.DiskRead, err = diskRead(d); err != nil {
		return m, fmt.Errorf("/proc/diskstats: %w", err)
	}
	return m, nil
}

// vmstat adds pgscan_kswapd and pgscan_direct to m.Scanned, and allocstall of each zone to m.Stalls.
func (m *Memory) vmstat(in io.Reader) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		var to *uint64
		switch {
		case name == "pgscan_kswapd" || name == "pgscan_direct":
			to = &m.Scanned
		case strings.HasPrefix(name, "allocstall"):
			to = &m.Stalls
		default:
			continue
		}
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		*to += n
	}
	return lines.Err()
}

// sector is the unit of diskstats for every disk (Documentation/admin-guide/iostats.rst).
const sector = 512

// diskRead adds up the sectors that were read from whole disks. Stacked devices (dm, md, loop)
// would count the reads of the disks below them again.
func diskRead(in io.Reader) (uint64, error) {
	sum := uint64(0)
	disk := "" // the last whole disk: the names of its partitions begin with its name
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 6 {
			return 0, fmt.Errorf("got %.80q, want a disk with its counters", lines.Text())
		}
		name := f[2]
		if strings.HasPrefix(name, "loop") || strings.HasPrefix(name, "dm-") || strings.HasPrefix(name, "md") ||
			strings.HasPrefix(name, "ram") || strings.HasPrefix(name, "zram") {
			continue
		}
		if disk != "" && strings.HasPrefix(name, disk) && len(name) > len(disk) {
			continue
		}
		disk = name
		n, err := strconv.ParseUint(f[5], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		sum += n * sector
	}
	return sum, lines.Err()
}

func (m Memory) since(a Memory) Memory {
	return Memory{m.Scanned - a.Scanned, m.Stalls - a.Stalls, m.DiskRead - a.DiskRead}
}
