// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/vethtest"
)

// What is no growth: connections that a process under load has not closed yet, the
// threads for them, and memory that comes and goes. A leak with each answer is more in
// seconds, and one of a hundredth of that in an hour.
const (
	spareDescriptors = asksEach + 12
	spareThreads     = 8
	spareMemory      = 8 << 10 // kB
)

// A Process is one that lives for long.
type Process struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
	// Answers were given, and Lost not, or wrong.
	Answers int    `json:"answers"`
	Lost    int    `json:"lost"`
	Wrong   string `json:"wrong,omitempty"` // why the first was lost
	Samples int    `json:"samples"`
	// FirstHalf and SecondHalf are the most that was seen, of the samples after
	// the first fifth.
	FirstHalf  Usage `json:"firstHalf"`
	SecondHalf Usage `json:"secondHalf"`

	ask  func() error
	seen []Usage
}

// Usage is what a process has at one time.
type Usage struct {
	Descriptors int `json:"descriptors"`
	Memory      int `json:"memoryKB"` // resident, anonymous
	Threads     int `json:"threads"`
}

func (p *Process) question() {
	err := p.ask()
	if err == nil {
		p.Answers++
		return
	}
	if p.Lost++; p.Wrong == "" {
		p.Wrong = err.Error()
	}
}

func (p *Process) sample(t *testing.T) {
	u, err := usage(p.PID)
	if err != nil {
		t.Errorf("%s: %v", p.Name, err)
		return
	}
	p.Samples++
	p.seen = append(p.seen, u)
}

// usage reads what a process has. The error is the kernel's if it has ended.
func usage(pid int) (u Usage, err error) {
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return u, err
	}
	u.Descriptors = len(fds)
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(b)) {
		_, _ = fmt.Sscanf(line, "RssAnon: %d kB", &u.Memory)
		_, _ = fmt.Sscanf(line, "Threads: %d", &u.Threads)
	}
	if u.Memory == 0 {
		return u, fmt.Errorf("process %d has no memory: it has ended", pid)
	}
	return u, nil
}

// judge compares the second half of the time with the first, and says what is wrong.
func (p *Process) judge() (faults []string) {
	steady := p.seen[len(p.seen)/5:]
	p.FirstHalf, p.SecondHalf = most(steady[:len(steady)/2]), most(steady[len(steady)/2:])
	if p.Lost > 0 || p.Answers == 0 {
		faults = append(faults, fmt.Sprintf("%d answers, %d lost: %s", p.Answers, p.Lost, p.Wrong))
	}
	grown := func(what string, was, now, spare int) {
		if now > was+spare {
			faults = append(faults, fmt.Sprintf("%d %s, %d before", now, what, was))
		}
	}
	grown("descriptors", p.FirstHalf.Descriptors, p.SecondHalf.Descriptors, spareDescriptors)
	grown("threads", p.FirstHalf.Threads, p.SecondHalf.Threads, spareThreads)
	grown("kB", p.FirstHalf.Memory, p.SecondHalf.Memory, p.FirstHalf.Memory/4+spareMemory)
	return faults
}

func most(us []Usage) (m Usage) {
	for _, u := range us {
		m.Descriptors, m.Memory, m.Threads = max(m.Descriptors, u.Descriptors), max(m.Memory, u.Memory), max(m.Threads, u.Threads)
	}
	return m
}

// packets opens what sends frames from the veth's other end, and makes one.
func packets(t *testing.T) (fd int, frame []byte) {
	link, err := net.InterfaceByName(vethtest.Peer)
	if err != nil {
		t.Fatal(err)
	}
	const experimental = 0xb588 // 0x88b5 (IEEE 802), in network order
	if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: experimental, Ifindex: link.Index})
	}
	if err != nil {
		t.Fatal(err)
	}
	frame = make([]byte, 60)
	copy(frame, "\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x01\x88\xb5")
	return fd, frame
}

// TestJudge: what grows, and what is lost, is found.
func TestJudge(t *testing.T) {
	for name, p := range map[string]*Process{
		"descriptors": {Answers: 1, seen: []Usage{{10, 1000, 5}, {10, 1000, 5}, {11, 1000, 5}, {50, 1000, 5}}},
		"memory":      {Answers: 1, seen: []Usage{{10, 1000, 5}, {10, 1000, 5}, {11, 1000, 5}, {10, 20000, 5}}},
		"threads":     {Answers: 1, seen: []Usage{{10, 1000, 5}, {10, 1000, 5}, {11, 1000, 5}, {10, 1000, 50}}},
		"lost":        {Answers: 1, Lost: 1, seen: []Usage{{10, 1000, 5}, {10, 1000, 5}}},
		"silent":      {seen: []Usage{{10, 1000, 5}, {10, 1000, 5}}},
	} {
		if faults := p.judge(); len(faults) != 1 {
			t.Errorf("%s: found %q", name, faults)
		}
	}
	p := &Process{Answers: 1, seen: []Usage{{90, 90000, 90}, {10, 1000, 5}, {12, 1100, 6}, {10, 1000, 5}, {13, 1200, 7}}}
	if faults := p.judge(); len(faults) > 0 {
		t.Errorf("what does not grow: found %q", faults)
	}
}
