// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/sched"
)

// DefaultMemory is the guest's memory in bytes, if Config has none.
const DefaultMemory = 2 << 30

// DefaultStall is the default of Config.Stall.
const DefaultStall = 5 * time.Minute

// A Config says what runs in the guest.
type Config struct {
	// Kernel is the path of the guest's kernel; "": the one that tools/virtual-kernel built last.
	Kernel string
	// Init is the path of a program that calls Init for the arguments InitArgs and the path that
	// follows them.
	Init     string
	InitArgs []string
	// Args are the program to run, and its arguments. Env goes before the
	// guest's own environment.
	Args []string
	Env  []string
	// Dir is the directory in which the program starts; "": the caller's.
	Dir string
	// Writable are directories of the host in which the guest's files stay.
	Writable []string
	// Memory is the guest's memory in bytes; 0: DefaultMemory.
	Memory int64
	// Seed is what the guest's random numbers come from; 0 means 1.
	Seed uint64
	// Parameters are added to the kernel's command line, such as "simcard.queues=16".
	Parameters []string
	// Stdout and Stderr get the program's output.
	Stdout, Stderr io.Writer
	// Stall is the real time after which a guest is ended whose clock has not moved by a beat;
	// 0: DefaultStall.
	Stall time.Duration
}

// A job is what the guest's init reads.
type job struct {
	Args     []string
	Env      []string
	Dir      string
	Writable []string
	// Status is the file that gets the program's exit status.
	Status string
}

// An ExitError says that the program in the guest did not end with status 0.
type ExitError struct{ Status int }

func (e *ExitError) Error() string { return fmt.Sprintf("exit status %d", e.Status) }

// Run runs a program in a guest and returns when the guest has ended. It returns an *ExitError if
// the program's exit status is not 0.
func Run(ctx context.Context, c Config) error {
	kernel, err := findKernel(c.Kernel)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "niclane-virtual-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c.Seed = cmp.Or(c.Seed, 1)
	j := job{Args: c.Args, Env: append(c.Env, seedVariable+"="+strconv.FormatUint(c.Seed, 10)), Dir: c.Dir,
		Writable: append(c.Writable, dir), Status: filepath.Join(dir, "status")}
	if j.Dir == "" {
		if j.Dir, err = os.Getwd(); err != nil {
			return err
		}
	}
	text, err := json.Marshal(j)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "job.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := c.boot(ctx, kernel, dir, f); err != nil {
		return err
	}
	status, err := os.ReadFile(j.Status)
	if err != nil {
		return errors.New("virtual: the guest ended before its program")
	}
	n, err := strconv.Atoi(string(status))
	if err != nil {
		return fmt.Errorf("virtual: the guest's status is %q", status)
	}
	if n != 0 {
		return &ExitError{n}
	}
	return nil
}

// boot runs the kernel until it ends.
func (c *Config) boot(ctx context.Context, kernel, dir string, job *os.File) error {
	memory, stall := c.Memory, c.Stall
	if memory == 0 {
		memory = DefaultMemory
	}
	if stall == 0 {
		stall = DefaultStall
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	args := []string{
		"root=/dev/root", "rootfstype=hostfs", "hostfs=/", "ro", "mem=" + strconv.FormatInt(memory>>20, 10) + "M",
		"time-travel=inf-cpu", "time-travel-start=" + strconv.FormatInt(epoch, 10),
		"seed=" + strconv.FormatUint(c.Seed, 10),
		"seccomp=auto", "norandmaps",
		"con=null", "con0=null,fd:2", "ssl=null", "ssl0=null,fd:3", "ssl1=null,fd:4", "ssl2=null,fd:5",
	}
	args = append(args, c.Parameters...)
	// The kernel puts what it does not know into the environment of the guest's first process.
	args = append(args, guestVariable+"=1", "init="+c.Init, "--")
	args = append(append(args, c.InitArgs...), jobPath)
	cmd := exec.CommandContext(ctx, kernel, args...)
	// What the kernel says is of interest only if the guest fails.
	console := &tail{}
	cmd.Stdout, cmd.Stderr = console, console
	cmd.Env = []string{"HOME=" + dir, "TMPDIR=/dev/shm", "PATH=/usr/bin:/bin"}
	// A process of the guest ends with the kernel. Ctrl-C is for the caller, which ends the kernel.
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	cmd.WaitDelay = 10 * time.Second

	var beats atomic.Int64
	var one sync.Mutex
	done := make(chan error, 3)
	for _, w := range []io.Writer{locked{&one, c.Stdout}, locked{&one, c.Stderr}, counter{&beats}} {
		r, end, err := os.Pipe()
		if err != nil {
			return err
		}
		defer r.Close()
		defer end.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, end)
		go func() {
			_, err := io.Copy(w, r)
			done <- err
		}()
	}
	lines := len(cmd.ExtraFiles)
	cmd.ExtraFiles = append(cmd.ExtraFiles, job)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("virtual: start %s: %w", kernel, err)
	}
	if err := keepTogether(cmd.Process.Pid); err != nil {
		return errors.Join(fmt.Errorf("virtual: %w", err), cmd.Process.Kill(), cmd.Wait())
	}
	for _, f := range cmd.ExtraFiles {
		f.Close()
	}
	go watch(ctx, &beats, stall, cancel)
	err := cmd.Wait()
	errs := []error{context.Cause(ctx)}
	for range lines {
		errs = append(errs, <-done)
	}
	if context.Cause(ctx) == nil && err != nil {
		errs = append(errs, fmt.Errorf("virtual: %s: %w", kernel, err))
	}
	if err := errors.Join(errs...); err != nil {
		if said := console.last(); said != "" && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("%w; the guest's kernel said last: %s", err, said)
		}
		return err
	}
	return nil
}

// keepTogether gives a guest one processor of those that this process has. The guest's kernel and its
// programs take turns, tens of thousands of times a second. Between two processors a turn takes up to
// three times as long. Guests that run at the same time get different processors, by their PID.
func keepTogether(pid int) error {
	cpus, err := sched.Affinity(pid)
	if err != nil {
		return err
	}
	return sched.SetAffinity(pid, cpus[pid%len(cpus):][:1])
}

// guestVariable is set in the environment of the guest's first process.
const guestVariable = "NICLANE_GUEST"

// jobPath is where the guest's init finds the job: the kernel's own descriptor 6, by the host's
// /proc. The kernel's random numbers depend on its command line, so that it must not have a path
// that differs from run to run.
const jobPath = "/proc/self/fd/6"

// epoch is when the guest's clock starts, in ns since 1970: 2026-01-01 00:00 UTC.
const epoch = 1767225600e9

// beat is the virtual time between two signs of life.
const beat = 100 * time.Millisecond

// watch ends a guest without signs of life.
func watch(ctx context.Context, beats *atomic.Int64, stall time.Duration, cancel context.CancelCauseFunc) {
	ticker := time.NewTicker(stall)
	defer ticker.Stop()
	for was := int64(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		is := beats.Load()
		if is == was {
			cancel(fmt.Errorf("virtual: the guest's clock stood still for %v at %v after its start: a program that "+
				"spins until time passes never ends", stall, time.Duration(is)*beat))
			return
		}
		was = is
	}
}

// A locked writer writes while no other with the same lock does: Stdout and Stderr can be one writer.
// Writes to nil are lost.
type locked struct {
	lock *sync.Mutex
	w    io.Writer
}

func (l locked) Write(p []byte) (int, error) {
	if l.w == nil {
		return len(p), nil
	}
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.w.Write(p)
}

// A counter counts the bytes that are written to it.
type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// A tail keeps the end of what is written to it.
type tail struct{ bytes.Buffer }

const maxTail = 64 << 10

func (t *tail) Write(p []byte) (int, error) {
	if t.Len()+len(p) > maxTail {
		t.Next(t.Len() / 2)
	}
	return t.Buffer.Write(p)
}

// last returns the last lines before a panic's trace.
func (t *tail) last() string {
	text, _, _ := strings.Cut(t.String(), "Kernel panic")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}

// Check returns an error if there is no kernel at path; "": where tools/virtual-kernel puts it.
func Check(path string) error {
	_, err := findKernel(path)
	return err
}

// findKernel returns the path of the guest's kernel.
func findKernel(path string) (string, error) {
	if path == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("virtual: %w", err)
		}
		path = filepath.Join(cache, "niclane", "kernels", "linux-virtual")
	}
	if err := unix.Access(path, unix.X_OK); err != nil {
		return "", fmt.Errorf("virtual: the kernel of virtual time, %s: %w; tools/virtual-kernel in niclane's "+
			"repository builds it", path, err)
	}
	return path, nil
}
