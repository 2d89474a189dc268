// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/journal"
)

// GuardArg is the first argument of the guardian process, which StartGuard starts from the
// running executable. The second argument is RunGuard's arg.
const GuardArg = "internal-guard"

// guardStart is the longest time for the guardian to start, and for its answer to a request.
const guardStart = 20 * time.Second

// guardDial is the longest time for connecting to a guardian.
const guardDial = 3 * time.Second

// A Guard is a connection to the guardian of one apply. The guardian is a process that undoes
// this apply unless Confirm is called in time. It undoes it even if the applying process and its
// login were killed.
type Guard struct {
	conn     *net.UnixConn
	in       *bufio.Reader
	within   time.Duration
	warnings []string
}

// A guardConfig is the guardian's configuration.
type guardConfig struct {
	RunDir     string        `json:"runDir"`
	StateDir   string        `json:"stateDir"`
	Config     string        `json:"config"`
	Generation int           `json:"generation"`
	When       time.Time     `json:"when"`
	Within     time.Duration `json:"within"`
	Applier    int           `json:"applier"`
}

// StartGuard starts the guardian for the plan of j, before the plan is applied. It returns when
// the guardian is ready. The caller must hold the lock in runDir and run in the network namespace
// of j. If an earlier change still waits for confirmation, StartGuard returns an error.
func StartGuard(j *journal.Journal, runDir, stateDir string, within time.Duration) (*Guard, error) {
	if err := CheckPending(runDir); err != nil {
		return nil, err
	}
	h := j.Head()
	arg, err := json.Marshal(guardConfig{
		RunDir: runDir, StateDir: stateDir, Config: h.Config, Generation: h.Generation,
		When: h.When, Within: within, Applier: os.Getpid(),
	})
	if err != nil {
		return nil, err
	}
	ours, theirs, err := socketpair()
	if err != nil {
		return nil, fmt.Errorf("guardian: %w", err)
	}
	defer theirs.Close()
	// The child is forked from this thread, so it is in the same network namespace. Its standard
	// streams are /dev/null.
	cmd := exec.Command("/proc/self/exe", GuardArg, string(arg))
	cmd.Args[0] = "niclane"
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		ours.Close()
		return nil, fmt.Errorf("guardian: %w", err)
	}
	// Wait collects the exit status if the guardian ends before this process. If it ends later, init
	// does so.
	go cmd.Wait()
	g := &Guard{conn: ours, in: bufio.NewReader(ours), within: within}
	if err := g.ready(theirs); err != nil {
		ours.Close()
		return nil, errors.Join(err, cmd.Process.Kill())
	}
	return g, nil
}

func socketpair() (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	theirs = os.NewFile(uintptr(fds[1]), "guardian")
	f := os.NewFile(uintptr(fds[0]), "guardian")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return c.(*net.UnixConn), theirs, nil
}

// ready waits for the guardian's message that it is ready. It first closes this process's copy of
// the guardian's end of the socket. Otherwise the stream would not end if the guardian dies.
func (g *Guard) ready(theirs *os.File) error {
	theirs.Close()
	if err := g.conn.SetReadDeadline(time.Now().Add(guardStart)); err != nil {
		return fmt.Errorf("guardian: %w", err)
	}
	for {
		line, err := g.in.ReadString('\n')
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case err != nil:
			return fmt.Errorf("guardian: ended before it was ready: %w", err)
		case word == "warning":
			g.warnings = append(g.warnings, rest)
		case word == "error":
			return fmt.Errorf("guardian: %s", rest)
		case word == "ready":
			return nil
		}
	}
}

// Warnings returns problems that make it less certain that the guardian can undo the apply.
func (g *Guard) Warnings() []string { return g.warnings }

// Ended tells the guardian that apply has made all steps. From now on, the guardian waits for
// Confirm, until the returned time.
func (g *Guard) Ended() (time.Time, error) {
	if err := g.ask("ended"); err != nil {
		return time.Time{}, err
	}
	return time.Now().Add(g.within), g.conn.Close()
}

// Cancel tells the guardian that apply has failed and has undone its steps itself.
func (g *Guard) Cancel() error {
	return errors.Join(g.ask("cancel"), g.conn.Close())
}

func (g *Guard) ask(word string) error {
	if err := g.conn.SetDeadline(time.Now().Add(guardStart)); err != nil {
		return fmt.Errorf("guardian: %w", err)
	}
	if _, err := fmt.Fprintln(g.conn, word); err != nil {
		return fmt.Errorf("guardian: %w", err)
	}
	line, err := g.in.ReadString('\n')
	if err != nil {
		return fmt.Errorf("guardian: no answer: %w", err)
	}
	if line = strings.TrimSpace(line); line != "ok" {
		return fmt.Errorf("guardian: %s", line)
	}
	return nil
}

func guardSocket(runDir string) string { return filepath.Join(runDir, "guard.sock") }

// pendingFile is the path of a file that exists while a guardian waits for confirmation. If the
// guardian is killed, the file remains: its change was never confirmed.
func pendingFile(runDir string) string { return filepath.Join(runDir, "guard.json") }

func lastUndo(runDir string) string { return filepath.Join(runDir, "undone.json") }

// ErrNothingPending is the error of Confirm if no change waits for confirmation.
var ErrNothingPending = errors.New("no change waits to be confirmed")

// Confirm keeps the change that waits for confirmation. Only root can call it, because only root
// can enter runDir.
func Confirm(runDir string) error {
	answer, err := askGuard(runDir, "confirm")
	switch {
	case errors.Is(err, ErrNothingPending):
		if orphan(runDir) != nil {
			return os.Remove(pendingFile(runDir))
		}
		return fmt.Errorf("%w%s", err, describeLast(runDir))
	case err != nil:
		return fmt.Errorf("confirm: %w", err)
	case answer != "ok":
		return fmt.Errorf("confirm: %s", answer)
	}
	return nil
}

// nothing is the guardian's answer if its change was rolled back in the meantime. The guardian
// then ends.
const nothing = "nothing"

// CheckPending returns an error if a change waits for confirmation; it names that change. No
// other change may start before, because then the guardian could not undo the first one.
func CheckPending(runDir string) error {
	answer, err := askGuard(runDir, "status")
	if errors.Is(err, ErrNothingPending) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("guardian: %w", err)
	}
	if answer == nothing {
		return nil
	}
	return fmt.Errorf("%s: niclane confirm keeps it, niclane rollback --last undoes it", answer)
}

// Unconfirmed describes a change that was not confirmed and that nothing will undo, because its
// guardian was killed. It returns "" if there is none.
func Unconfirmed(runDir string) string {
	if _, err := askGuard(runDir, "status"); !errors.Is(err, ErrNothingPending) {
		return ""
	}
	c := orphan(runDir)
	if c == nil {
		return ""
	}
	return fmt.Sprintf("the change of %s at %s was never confirmed, and the process that was to undo it is gone: "+
		"niclane confirm keeps it, niclane rollback --last undoes it",
		c.Config, c.When.Format(time.RFC3339))
}

// orphan returns the configuration of a guardian that was killed, if its change is still in force
// in this network namespace. Otherwise it returns nil.
func orphan(runDir string) *guardConfig {
	var c guardConfig
	b, err := os.ReadFile(pendingFile(runDir))
	if err != nil || json.Unmarshal(b, &c) != nil {
		return nil
	}
	here, err := journal.Here()
	if err != nil {
		return nil
	}
	if there, err := c.journalled(here); !there || err != nil {
		return nil
	}
	return &c
}

// journal returns the journal of the guarded change, and a closer that the caller must call
// later. It returns nil if that journal is gone or belongs to another change.
func (c *guardConfig) journal(here journal.Host) (*journal.Journal, io.Closer, error) {
	s, err := journal.OpenExisting(c.StateDir, here)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	js, listErr := s.Here()
	for _, j := range js {
		if h := j.Head(); h.Config == c.Config && h.Generation == c.Generation && h.When.Equal(c.When) {
			return j, s, nil
		}
	}
	return nil, nil, errors.Join(listErr, s.Close())
}

// journalled reports whether the journal of the guarded change exists.
func (c *guardConfig) journalled(here journal.Host) (bool, error) {
	j, s, err := c.journal(here)
	if j == nil {
		return false, err
	}
	return true, s.Close()
}

// askGuard sends a word to the running guardian and returns its answer. If nothing listens on the
// socket, a killed guardian has left it; the error is then ErrNothingPending.
func askGuard(runDir, word string) (string, error) {
	c, err := net.DialTimeout("unix", guardSocket(runDir), guardDial)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return "", ErrNothingPending
	}
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(guardStart)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(c, word); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
		// The guardian ended after it had accepted the connection.
		return "", ErrNothingPending
	}
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(line), nil
}

// An undoRecord is what the guardian writes to a file after it has undone a change.
type undoRecord struct {
	Config string    `json:"config"`
	When   time.Time `json:"when"`
	Why    string    `json:"why"`
	Error  string    `json:"error,omitempty"` // the beginning of the error
}

// recordRoom is the size in bytes of the pending file. After an undo, the guardian overwrites the
// file with its record and renames it. It needs no new disk space for that.
const recordRoom = 8 << 10

// padded returns v as JSON, filled up with spaces to at least recordRoom bytes.
func padded(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	return append(b, bytes.Repeat([]byte(" "), max(recordRoom-len(b), 0))...), err
}

func describeLast(runDir string) string {
	b, err := os.ReadFile(lastUndo(runDir))
	var u undoRecord
	if err != nil || json.Unmarshal(b, &u) != nil {
		return ""
	}
	return "; " + u.String()
}

// String says what was undone, when and why.
func (u undoRecord) String() string {
	s := fmt.Sprintf("%s was undone at %s: %s", u.Config, u.When.Format(time.RFC3339), u.Why)
	if u.Error != "" {
		s = fmt.Sprintf("%s should have been undone at %s (%s), but is not, or only in part: %s", u.Config,
			u.When.Format(time.RFC3339), u.Why, u.Error)
	}
	return s
}
