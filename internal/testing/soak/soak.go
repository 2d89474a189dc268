// SPDX-License-Identifier: Apache-2.0

// Package soak queries long-running processes under load. It checks that the processes do not use
// more and more resources. It is for tests.
package soak

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
)

// AsksEach is the number of queries to each process between two samples.
const AsksEach = 20

// These differences do not count as growth. A process under load has connections that are not
// closed yet, threads for them, and temporary memory. A leak at each answer exceeds these limits
// within seconds. A leak at one answer in a hundred exceeds them within an hour.
const (
	spareDescriptors = AsksEach + 12
	spareThreads     = 8
	spareMemory      = 8 << 10 // kB
)

// A Process is a long-running process, with the results of its measurement.
type Process struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
	// Ask sends one query. It returns an error if the answer is lost or wrong.
	Ask func() error `json:"-"`
	// Answers counts the correct answers. Lost counts the lost and the wrong ones.
	Answers int    `json:"answers"`
	Lost    int    `json:"lost"`
	Wrong   string `json:"wrong,omitempty"` // what was wrong with the first answer that counts as lost
	Samples int    `json:"samples"`
	// FirstHalf and SecondHalf are the largest values in each half of the samples. The first fifth of
	// all samples is left out.
	FirstHalf  Usage `json:"firstHalf"`
	SecondHalf Usage `json:"secondHalf"`

	seen []Usage
}

// Usage is what a process uses at one time.
type Usage struct {
	Descriptors int `json:"descriptors"`
	Memory      int `json:"memoryKB"` // resident anonymous memory
	Threads     int `json:"threads"`
}

// Length returns how long the soak lasts: NICLANE_SOAK if it is set, otherwise d.
func Length(t *testing.T, d time.Duration) time.Duration {
	v := os.Getenv("NICLANE_SOAK")
	if v == "" {
		return d
	}
	length, err := time.ParseDuration(v)
	if err != nil || length < time.Second {
		t.Fatalf("NICLANE_SOAK: %q: want a time of at least 1s", v)
	}
	return length
}

// Overlay returns the flag -overlay for go build. The flag adds testdata/collect.go to the command
// in a directory, so that the command collects garbage ten times a second.
func Overlay(t *testing.T, top, command string) string {
	top, err := filepath.Abs(top)
	must.Do(t, err)
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(top, command, "collect.go"): filepath.Join(top, "internal/testing/soak/testdata/collect.go"),
	}})
	file := filepath.Join(t.TempDir(), "overlay.json")
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	must.Do(t, err)
	return "-overlay=" + file
}

// Run samples processes for the time length, and then judges them. Between two samples it sends
// AsksEach queries to each process. It calls load before each round of queries. It calls rest again
// and again until the next sample is due.
func Run(t *testing.T, length time.Duration, processes []*Process, load, rest func()) {
	every := min(max(length/100, 50*time.Millisecond), 5*time.Second)
	for deadline := time.Now().Add(length); time.Now().Before(deadline) && !t.Failed(); {
		next := time.Now().Add(every)
		for range AsksEach {
			load()
			for _, p := range processes {
				p.question()
			}
		}
		for _, p := range processes {
			p.sample(t)
		}
		for time.Now().Before(next) {
			rest()
			time.Sleep(time.Millisecond)
		}
	}
	for _, p := range processes {
		for _, fault := range p.judge() {
			t.Errorf("%s (process %d): %s", p.Name, p.PID, fault)
		}
	}
	write(t, length, processes)
}

// write writes a file for each process into the directory that NICLANE_SOAK_OUT names. If it is not
// set, write does nothing.
func write(t *testing.T, length time.Duration, processes []*Process) {
	to := os.Getenv("NICLANE_SOAK_OUT")
	if to == "" {
		return
	}
	var u unix.Utsname
	err := unix.Uname(&u)
	if err == nil {
		err = os.MkdirAll(to, 0o755)
	}
	for _, p := range processes {
		text, merr := json.MarshalIndent(struct {
			Kernel   string `json:"kernel"`
			Duration string `json:"duration"`
			*Process
		}{unix.ByteSliceToString(u.Release[:]), length.String(), p}, "", "  ")
		if err == nil {
			err = merr
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, strings.ReplaceAll(p.Name, " ", "-")+".json"), append(text, '\n'),
				0o644)
		}
		t.Logf("%-12s %6d samples, %7d answers, %d lost; descriptors %d to %d, memory %d to %d kB", p.Name, p.Samples,
			p.Answers, p.Lost,
			p.FirstHalf.Descriptors, p.SecondHalf.Descriptors, p.FirstHalf.Memory, p.SecondHalf.Memory)
	}
	must.Do(t, err)
}

func (p *Process) question() {
	err := p.Ask()
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

// usage returns what a process uses now. If the process has ended, the error is the kernel's.
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

// judge compares the second half of the samples with the first, and returns what is wrong.
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
		m.Descriptors, m.Memory, m.Threads = max(m.Descriptors, u.Descriptors), max(m.Memory, u.Memory),
			max(m.Threads, u.Threads)
	}
	return m
}
