// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/niclane/niclane/lab/emucard"
)

// TestSystemKillInCall kills apply at system calls, also in the middle of the work on one object.
// The environment variable NICLANE_KILL_SEED selects other calls, NICLANE_KILL_CALLS the number
// of calls.
func TestSystemKillInCall(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	seed, kills := uint64(1), 12
	if s := os.Getenv("NICLANE_KILL_SEED"); s != "" {
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	if s := os.Getenv("NICLANE_KILL_CALLS"); s != "" {
		if kills, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	r := rand.New(rand.NewPCG(seed, 0))
	onSeededSystem(t, seed%100, func(t *testing.T, lanes string) {
		p, start, dir := planHere(t, lanes), dump(t), t.TempDir()
		killed := 0
		for range kills {
			call := []string{"bpf", "sendto", "write", "ioctl", "sched_setattr", "sched_setaffinity"}[r.IntN(6)]
			when := 1 + r.IntN(map[string]int{"bpf": 400, "sendto": 150, "write": 90, "ioctl": 250}[call]+2)
			c := quietApplier(dir, p)
			self := c.command(t)
			if self.Path, err = os.Executable(); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(strace, append([]string{"-f", "-qq", "-o", "/dev/null",
				"-e", "trace=" + call, "-e", fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", call, when), self.Path},
				self.Args[1:]...)...)
			out, err := cmd.CombinedOutput()
			switch {
			case err == nil:
			case cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL:
				killed++
			default:
				t.Fatalf("%v: %s", err, out)
			}
			if _, err := os.Stat(emucard.Root); err != nil {
				t.Fatal(err)
			}
			if files, _ := filepath.Glob(dir + "/state/*.journal"); len(files) > 0 {
				if _, err := rollback(t, dir); err != nil {
					t.Errorf("%s %d: %v", call, when, err)
				}
			}
			wantDump(t, fmt.Sprintf("killed at %s number %d, rolled back", call, when), start)
			if t.Failed() {
				return
			}
		}
		t.Logf("%d of %d runs were killed", killed, kills)
		if killed == 0 {
			t.Error("no run was killed")
		}
	})
}
