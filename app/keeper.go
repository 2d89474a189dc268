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

// KeeperArg is the argument with which niclane becomes a keeper.
const KeeperArg = "internal-keeper"

// lookEvery is how often the keeper looks whether there are other processes or
// listeners. A listener that it does not know yet gets its connections by the
// kernel's hash: nothing is lost, only not aligned.
const lookEvery = 200 * time.Millisecond

// startKeeper starts the process that follows an application and cleans up
// after it. It is nobody's child: the application, which this process is about
// to become, must not find one that it did not start.
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
	out, err := cmd.Output() // the launcher's: it ends when the keeper is ready
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

// stopKeeper ends the keeper, unless it is the caller.
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
	if !r.Keeper.Alive() { // the PID is another's by now
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("keeper: %w", err)
	}
	// It holds nothing that its end would not give back; wait for that.
	for {
		// The runtime's own signals interrupt it.
		if _, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 5000); err != unix.EINTR {
			return err
		}
	}
}

// RunKeeper is the whole life of the launcher (args: DIR ID) and of the keeper
// (DIR ID "keep"), in the network namespace of the application.
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
	r, err := s.Read(id) // whoever starts the keeper has the records open
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

// followed reports whether there is more to see of the application than its end.
func (r *Record) followed() bool { return r.Listeners != nil || r.BusyPoll != nil }

// wait waits for the next look: for the process to end where that is all there
// is to see.
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

// end cleans up after the application, unless somebody else has.
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

// leaveGroups moves the keeper to the root of each hierarchy that a service
// manager ends processes by: it outlives whoever started it.
func leaveGroups() {
	c, err := findGroups()
	if err != nil {
		return
	}
	for _, h := range []hierarchy{{"", c.V2}, {"cpuset", c.V1["cpuset"]}} {
		if h.root != "" {
			// Where it may not leave it stays, and ends with its group.
			_ = Group{Root: h.root, Path: "/"}.join(os.Getpid())
		}
	}
}
