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

// GuardArg is the first argument of the process that StartGuard starts from
// the running executable; its second is RunGuard's.
const GuardArg = "internal-guard"

// guardStart bounds how long the guardian may take to be ready.
const guardStart = 20 * time.Second

// guardDial bounds how long connecting to one may take: it is there or it is not.
const guardDial = 3 * time.Second

// A Guard is the guardian of one apply: a process that undoes what this
// generation of the journal did unless Confirm is called in time, also when
// this process and the login it runs in are killed.
type Guard struct {
	conn     *net.UnixConn
	in       *bufio.Reader
	within   time.Duration
	warnings []string
}

// A guardConfig is what the guardian is told.
type guardConfig struct {
	RunDir     string        `json:"runDir"`
	StateDir   string        `json:"stateDir"`
	Config     string        `json:"config"`
	Generation int           `json:"generation"`
	When       time.Time     `json:"when"`
	Within     time.Duration `json:"within"`
	Applier    int           `json:"applier"`
}

// StartGuard starts the guardian of j, whose plan is about to be made, and
// returns when it is on watch. The caller holds the lock in runDir, and runs
// in the network namespace of j. It is an error if an earlier change still
// waits to be confirmed.
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
	// The child forks from this thread, so it is in this thread's network
	// namespace. Standard streams are /dev/null.
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
	// Collected here if it ends before us, by init otherwise.
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

// ready waits for the guardian's first words. Our copy of its end is closed
// first, so that its death is the end of the stream.
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

// Warnings are what makes the guardian less safe than it should be.
func (g *Guard) Warnings() []string { return g.warnings }

// Ended tells the guardian that apply has made all steps. From now on it waits
// for Confirm, until the time returned.
func (g *Guard) Ended() (time.Time, error) {
	if err := g.ask("ended"); err != nil {
		return time.Time{}, err
	}
	return time.Now().Add(g.within), g.conn.Close()
}

// Cancel tells the guardian that apply has failed and undone itself.
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

// pendingFile is there while a guardian is on watch: one that is left by a guardian
// that was killed says that its change was never confirmed.
func pendingFile(runDir string) string { return filepath.Join(runDir, "guard.json") }

func lastUndo(runDir string) string { return filepath.Join(runDir, "undone.json") }

// ErrNothingPending is Confirm's error when no change waits for it.
var ErrNothingPending = errors.New("no change waits to be confirmed")

// Confirm keeps the change that waits for it. Only who can enter runDir can
// confirm: root.
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

// nothing is the guardian's answer when the change that it was to guard was rolled
// back: it ends then.
const nothing = "nothing"

// CheckPending returns an error that says which change waits to be confirmed,
// nil if there is none. Another change must not be made before: the undoing of
// the first would meet it.
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

// Unconfirmed says which change was never confirmed although its guardian was
// killed, and so will not be undone by itself; "" if there is none.
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

// orphan returns what a guardian that is gone was told, nil if there is none whose
// change is still in force in this network namespace.
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

// journal finds the journal of the guarded change, and what is to be closed after its
// use; nil if it is gone or tells of another change.
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

// journalled reports whether the journal of the guarded change is there.
func (c *guardConfig) journalled(here journal.Host) (bool, error) {
	j, s, err := c.journal(here)
	if j == nil {
		return false, err
	}
	return true, s.Close()
}

// askGuard asks the guardian that is on watch. A socket that nobody listens on
// was left by one that was killed.
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
		// It ended between listening and answering.
		return "", ErrNothingPending
	}
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(line), nil
}

// An undoRecord is what the guardian leaves behind when it has undone a change.
type undoRecord struct {
	Config string    `json:"config"`
	When   time.Time `json:"when"`
	Why    string    `json:"why"`
	Error  string    `json:"error,omitempty"` // its beginning
}

// recordRoom is the size in bytes of the pending file, which the guardian writes over
// and renames when it has undone a change: there need be no room by then.
const recordRoom = 8 << 10

// padded gives v as JSON of recordRoom bytes at least.
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

// String says what was done.
func (u undoRecord) String() string {
	s := fmt.Sprintf("%s was undone at %s: %s", u.Config, u.When.Format(time.RFC3339), u.Why)
	if u.Error != "" {
		s = fmt.Sprintf("%s was to be undone at %s (%s), and is not, or not entirely: %s", u.Config,
			u.When.Format(time.RFC3339), u.Why, u.Error)
	}
	return s
}
