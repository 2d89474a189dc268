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

// lookEvery is how often the keeper looks for new processes and listeners. Until the keeper has
// found a new listener, the kernel's hash also gives connections to it. No connection is lost, but
// such a connection may be on the wrong processor.
const lookEvery = 200 * time.Millisecond

// startKeeper starts the keeper, the process that follows an application and cleans up after it.
// This process is about to become the application, and an application must not have a child that it
// did not start. So startKeeper starts a launcher, which starts the keeper and ends.
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
	out, err := cmd.Output() // returns when the launcher has ended; then the keeper is ready
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

// stopKeeper kills the keeper. It does nothing if it runs in the keeper itself.
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
	// The keeper cleans up nothing when it ends, so SIGKILL is safe. Wait until it has ended.
	for {
		// The Go runtime's signals interrupt poll.
		if _, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 5000); err != unix.EINTR {
			return err
		}
	}
}

// RunKeeper runs the launcher if args are DIR ID, and the keeper if args are DIR ID "keep". Both
// run in the application's network namespace.
func RunKeeper(args []string) error {
	switch {
	case len(args) == 2:
		return launch(args)
	case len(args) == 3 && args[2] == "keep":
		return keep(args[0], args[1])
	}
	return fmt.Errorf("%s: want DIR and ID", KeeperArg)
}

// launch starts the keeper. When the keeper is ready, launch prints the keeper's PID.
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

// keep follows one application until it ends.
func keep(dir, id string) error {
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGPIPE, unix.SIGTSTP, unix.SIGTTIN,
		unix.SIGTTOU)
	s := &Store{dir: dir}
	r, err := s.Read(id) // without the lock: the process that starts the keeper holds it
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

// followed reports whether the keeper has work while the application runs.
func (r *Record) followed() bool { return r.Listeners != nil || r.BusyPoll != nil }

// wait waits until the keeper must look again. If the keeper has nothing to do before the
// application ends, wait waits for that end. main is the pidfd of the application's process.
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

// end cleans up after the application. If the record was removed already, it does nothing.
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

// leaveGroups moves the keeper out of the control groups of the service that started it, to the
// root of each hierarchy. The service manager would otherwise kill the keeper together with the
// service.
func leaveGroups() {
	c, err := findGroups()
	if err != nil {
		return
	}
	for _, h := range []hierarchy{{"", c.V2}, {"cpuset", c.V1["cpuset"]}} {
		if h.root != "" {
			// If the kernel refuses the move, the keeper ends together with its service.
			_ = Group{Root: h.root, Path: "/"}.join(os.Getpid())
		}
	}
}
