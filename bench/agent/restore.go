// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/part/tune"
	"github.com/niclane/niclane/internal/program"
	"github.com/niclane/niclane/lane/journal"
)

// marker is an environment variable with the session's ID. The session's jobs and their children
// have it, and the agent finds them by it.
const marker = "NICLANE_BENCH_SESSION"

// A record says what to restore at the end of a session. It is written to disk before the session
// changes anything.
type record struct {
	Session string `json:"session"`
	// Lanes is the path of the lanes file, by which niclane's journal names the lanes. StateDir and
	// RunDir are the directories of niclane's journals and lock.
	Lanes string `json:"lanes"`
	// Cards is the number of further lanes files: see cardFile.
	Cards    int    `json:"cards,omitempty"`
	StateDir string `json:"stateDir"`
	RunDir   string `json:"runDir"`
	Files    string `json:"files"`
	// Storage are the session's directories for large files.
	Storage []string `json:"storage,omitempty"`
	Group   group    `json:"group"`
}

// niclane runs a niclane command with the directories of the record. It looks for niclane each
// time: after an upgrade the path may differ.
func (r record) niclane(ctx context.Context, verb ...string) ([]byte, error) {
	path, err := program.Find(program.Niclane)
	if err != nil {
		return nil, err
	}
	return program.Lanes{Path: path, StateDir: r.StateDir, RunDir: r.RunDir}.Run(ctx, verb...)
}

func recordPath(dir string) string { return filepath.Join(dir, "session.json") }

func (r record) write(dir string) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	tmp := recordPath(dir) + ".new"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, recordPath(dir))
}

// restore restores the host as the record in the agent's directory says. Without a record it does
// nothing. It removes the record when all is restored.
func restore(dir string) error {
	b, err := os.ReadFile(recordPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return fmt.Errorf("%s: %w", recordPath(dir), err)
	}
	errs := []error{endMarked(r.Session), r.rollback(), tune.Restore(tunePath(dir)), r.Group.remove(),
		os.RemoveAll(r.Files), removeStorage(r.Session, r.Storage)}
	for card := range r.Cards + 1 {
		errs = append(errs, removeIfThere(cardFile(r.Lanes, card)))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return removeIfThere(recordPath(dir))
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// rollbackTime limits a rollback, which may have to wait for an apply.
const rollbackTime = time.Minute

// cardFile returns the path of the lanes file of a card; that of card 0 is path.
func cardFile(path string, card int) string {
	if card == 0 || path == "" {
		return path
	}
	return strings.TrimSuffix(path, ".yaml") + "-" + strconv.Itoa(card) + ".yaml"
}

// rollback undoes the lanes that niclane's journal has: those of the last card first, because each card's
// journal has the host's settings as the cards before it left them.
func (r record) rollback() error {
	if r.Lanes == "" {
		return nil
	}
	var errs []error
	for card := r.Cards; card >= 0; card-- {
		errs = append(errs, r.rollbackFile(cardFile(r.Lanes, card)))
	}
	return errors.Join(errs...)
}

func (r record) rollbackFile(file string) error {
	there, err := r.applied(file)
	if err != nil || !there {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), rollbackTime)
	defer cancel()
	for {
		_, err := r.niclane(ctx, "rollback", file)
		if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "another niclane is changing this host") {
			return err
		}
		time.Sleep(100 * time.Millisecond) // the lock does not tell when it will be free
	}
}

// applied reports whether the journal has the lanes of a file.
func (r record) applied(file string) (bool, error) {
	here, err := journal.Here()
	if err != nil {
		return false, err
	}
	store, err := journal.OpenExisting(r.StateDir, here)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer store.Close()
	js, err := store.Here()
	if err != nil {
		return false, err
	}
	for _, j := range js {
		if j.Head().Config == file {
			return true, nil
		}
	}
	return false, nil
}

// killTime limits the wait for killed processes.
const killTime = 5 * time.Second

// endMarked ends the processes of a session. It asks them first, and kills them after stopTime.
func endMarked(session string) error {
	begin := time.Now()
	sent := map[int]bool{}
	for {
		found, err := marked(session)
		if err != nil || len(found) == 0 {
			return err
		}
		since := time.Since(begin)
		if since > stopTime+killTime {
			return fmt.Errorf("processes %v cannot be ended", found)
		}
		for _, pid := range found {
			switch {
			case since > stopTime:
				signalMarked(pid, session, unix.SIGKILL)
			case !sent[pid]:
				sent[pid] = true
				signalMarked(pid, session, unix.SIGTERM)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// signalMarked signals a process of a session, but not another process that now has its PID.
func signalMarked(pid int, session string, sig unix.Signal) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // it has ended
	}
	defer unix.Close(fd)
	if isMarked(strconv.Itoa(pid), session) {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
}

// isMarked reports whether a process belongs to a session. It returns false if it cannot read the
// process's environment: the process has ended, is a zombie, or belongs to another user.
func isMarked(pid, session string) bool {
	env, err := readSome(filepath.Join("/proc", pid, "environ"))
	return err == nil && has(env, []byte(marker+"="+session))
}

// marked lists the running processes of a session.
func marked(session string) ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var out []int
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		if isMarked(name, session) {
			out = append(out, pid)
		}
	}
	return out, nil
}

// readSome reads up to 8 MiB of a file. A process cannot start with a larger environment.
func readSome(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 8<<20))
}

func has(env, want []byte) bool {
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if bytes.Equal(v, want) {
			return true
		}
	}
	return false
}

// KeeperCommand is the argument with which niclane-bench becomes an agent's keeper:
// niclane-bench KeeperCommand DIR.
const KeeperCommand = "internal-bench-keeper"

// startKeeper starts the keeper, a process that restores the host if the agent is killed. It
// returns the keeper's standard input.
func startKeeper(dir, self string) (*os.File, error) {
	ours, theirs, err := pipe()
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	cmd := exec.Command(self, KeeperCommand, dir)
	cmd.Env = []string{"PATH=" + commandPath}
	cmd.Dir = "/"
	cmd.Stdin = ours
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		theirs.Close()
		return nil, fmt.Errorf("keeper: %w", err)
	}
	go cmd.Wait()
	return theirs, nil
}

func pipe() (r, w *os.File, err error) {
	return os.Pipe() // close-on-exec: no job holds it open
}

// KeeperMain waits until its standard input is closed. If nothing was written to it, the agent
// was killed, and KeeperMain restores the host.
func KeeperMain(dir string) error {
	// Ignore signals to the agent's control group: systemd sends them to all processes of the
	// group, but means only the agent.
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	if n, err := io.Copy(io.Discard, os.Stdin); err != nil || n > 0 {
		return err
	}
	for deadline := time.Now().Add(killTime); ; {
		lock, err := lockMade(dir, 0)
		if err == nil {
			defer lock.Close()
			return restore(dir)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a directory that was removed is not created again
		}
		// Try again after EWOULDBLOCK: the agent is still ending, or a new agent has the lock and
		// restores the host.
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// lockDir creates and locks an agent's directory. The kernel releases the lock when the process
// ends.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, err
	}
	// Jobs run as another user, and need access to their files in dir.
	if err := os.Mkdir(dir, 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return lockMade(dir, os.O_CREATE)
}

// lockMade locks an agent's directory that exists. Without os.O_CREATE in flags, its lock file
// must exist too.
func lockMade(dir string, flags int) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return nil, &fs.PathError{Op: "lstat", Path: dir, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return nil, fmt.Errorf("%s: want a directory of user %d that no other user can write", dir, os.Geteuid())
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|unix.O_NOFOLLOW|flags, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w: another agent uses it", dir, err)
	}
	return f, nil
}
