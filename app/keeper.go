// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// KeeperArg is the first argument that makes niclane run as a keeper.
const KeeperArg = "internal-keeper"

// lookEvery is the interval at which the keeper looks for new processes or listeners. Until a
// look finds a new listener, the kernel's hash gives it connections: none is lost, but they are
// not aligned.
const lookEvery = 200 * time.Millisecond

// startKeeper starts the process that follows an application and cleans up after it. A launcher
// starts the keeper and ends, so that the keeper is not a child of this process. This process
// is about to become the application, which must not find a child that it did not start.
func (s *Store) startKeeper(r *Record, argv []string) error {
	if len(argv) == 0 {
		return errors.New("no keeper")
	}
	if err := s.Save(r); err != nil {
		return err
	}
	cmd := exec.Command(argv[0], append(argv[1:], s.dir, r.ID)...)
	cmd.Args[0] = "niclane"
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.Output() // returns when the launcher ends, after the keeper is ready
	if err != nil {
		return fmt.Errorf("keeper: %w", err)
	}
	line := strings.TrimSpace(string(out))
	pid, err := strconv.Atoi(line)
	if err != nil {
		return fmt.Errorf("keeper: %s", line)
	}
	p, err := FindProcess(pid)
	if err != nil {
		return fmt.Errorf("keeper: %w", err)
	}
	r.Keeper = &p
	return s.Save(r)
}

// stopKeeper kills the keeper, unless the keeper is the caller.
func (r *Record) stopKeeper() error {
	if r.Keeper == nil || r.Keeper.PID == os.Getpid() {
		return nil
	}
	fd, err := unix.PidfdOpen(r.Keeper.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("keeper: %w", err)
	}
	defer unix.Close(fd)
	if !r.Keeper.Alive() { // another process has the PID by now
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("keeper: %w", err)
	}
	// The keeper holds nothing that its end does not release, so SIGKILL is safe. Wait for the
	// end.
	for {
		// Signals of the Go runtime interrupt poll.
		if _, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 5000); err != unix.EINTR {
			return err
		}
	}
}

// RunKeeper runs the launcher (args: DIR ID) or the keeper (args: DIR ID "keep"). Both run in
// the application's network namespace.
func RunKeeper(args []string) error {
	switch {
	case len(args) == 2:
		return launch(args)
	case len(args) == 3 && args[2] == "keep":
		return keep(args[0], args[1])
	}
	return fmt.Errorf("%s: want DIR and ID", KeeperArg)
}

// launch starts the keeper and prints its PID when it is ready.
func launch(args []string) error {
	cmd := exec.Command("/proc/self/exe", append([]string{KeeperArg}, append(args, "keep")...)...)
	cmd.Args[0] = "niclane"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return fmt.Errorf("it ended: %w", cmd.Wait())
	}
	if line = strings.TrimSpace(line); line != "ready" {
		return errors.New(line)
	}
	fmt.Println(cmd.Process.Pid)
	return nil
}

// keep follows one application until its end.
func keep(dir, id string) error {
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGPIPE, unix.SIGTSTP, unix.SIGTTIN,
		unix.SIGTTOU)
	s := &Store{dir: dir}
	r, err := s.Read(id) // no lock: the process that starts the keeper holds it
	if err != nil {
		fmt.Println(err)
		return err
	}
	leaveGroups()
	fmt.Println("ready")
	if null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0); err == nil {
		for fd := range 3 {
			_ = unix.Dup3(int(null.Fd()), fd, 0)
		}
		null.Close()
	}
	k := &keeper{dir: dir, id: id}
	return k.run(context.Background(), r)
}

type keeper struct{ dir, id string }

func (k *keeper) run(ctx context.Context, r *Record) error {
	main, err := unix.PidfdOpen(r.Process.PID, 0)
	if err == nil {
		defer unix.Close(main)
	}
	follow := newFollower(&Store{dir: k.dir}, r, r.Queues)
	defer follow.close()
	busy := &busyFollower{}
	for {
		over, err := r.over()
		if err == nil && over {
			return k.end()
		}
		if r.Listeners != nil {
			follow.tick(ctx)
		}
		if r.BusyPoll != nil {
			busy.tick(r)
		}
		if err := k.wait(ctx, r, main); err != nil {
			return err
		}
	}
}

// followed reports whether the keeper has work before the application's end.
func (r *Record) followed() bool { return r.Listeners != nil || r.BusyPoll != nil }

// wait waits until the next look. If only the end of the process matters, it waits for that.
func (k *keeper) wait(ctx context.Context, r *Record, main int) error {
	if !r.followed() && r.Process.Alive() && main > 0 {
		for {
			_, err := unix.Poll([]unix.PollFd{{Fd: int32(main), Events: unix.POLLIN}}, -1)
			if err != unix.EINTR {
				return err
			}
		}
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(lookEvery):
		return nil
	}
}

// end cleans up after the application, unless its record is gone already.
func (k *keeper) end() error {
	s, err := Open(strings.TrimSuffix(k.dir, "/apps"))
	if err != nil {
		return err
	}
	defer s.Close()
	r, err := s.Read(k.id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.undo(r)
}

// leaveGroups moves the keeper to the root of each hierarchy by which a service manager ends
// processes. The keeper must outlive the service that started it.
func leaveGroups() {
	c, err := findGroups()
	if err != nil {
		return
	}
	for _, h := range []hierarchy{{"", c.V2}, {"cpuset", c.V1["cpuset"]}} {
		if h.root != "" {
			// If the move is refused, the keeper stays and ends with its group.
			_ = Group{Root: h.root, Path: "/"}.join(os.Getpid())
		}
	}
}
