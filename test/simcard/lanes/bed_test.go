// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/test/simcard/bed"
)

// A host runs niclane in the guest, with a lanes file and state of its own.
type host struct {
	t     *testing.T
	dir   string
	lanes string
}

// plug loads a card and writes a lanes file for it.
func plug(t *testing.T, lanes string, params ...string) *host {
	t.Helper()
	bed.Plug(t, params...)
	h := &host{t: t, dir: t.TempDir()}
	h.write(lanes)
	return h
}

func (h *host) write(lanes string) {
	h.t.Helper()
	h.lanes = filepath.Join(h.dir, "lanes.yaml")
	bed.Write(h.t, h.lanes, "version: 1\n"+lanes)
}

// niclane runs a command of niclane and returns its output. The exit code must be code.
func (h *host) niclane(code int, args ...string) string {
	h.t.Helper()
	got, out := h.run(args...)
	if got != code {
		h.t.Fatalf("niclane %s ended with %d, want %d:\n%s", strings.Join(args, " "), got, code, out)
	}
	return out
}

// run runs a command of niclane and returns its exit code and output.
func (h *host) run(args ...string) (code int, out string) {
	h.t.Helper()
	argv := append([]string{"--state-dir", filepath.Join(h.dir, "state"), "--run-dir", filepath.Join(h.dir, "run")},
		args...)
	text, err := exec.Command(os.Getenv("NICLANE_BINARY"), argv...).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		h.t.Fatal(err)
	}
	return code, string(text)
}

// watch starts niclane watch, which runs until end is called. said returns its output so far.
func (h *host) watch() (said func() string, end func()) {
	h.t.Helper()
	log := filepath.Join(h.dir, "watch.log")
	f, err := os.Create(log)
	must.Do(h.t, err)
	defer f.Close()
	cmd := exec.Command(os.Getenv("NICLANE_BINARY"), "--state-dir", filepath.Join(h.dir, "state"), "--run-dir",
		filepath.Join(h.dir, "run"), "watch")
	cmd.Stdout, cmd.Stderr = f, f
	must.Do(h.t, cmd.Start())
	said = func() string { return bed.Read(h.t, log) }
	return said, func() {
		h.t.Helper()
		if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
			h.t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			h.t.Errorf("watch: %v\n%s", err, said())
		}
	}
}

// applied plans and applies the lanes file. The plan must contain each of the words, and a plan
// after apply must be empty.
func (h *host) applied(words ...string) string {
	h.t.Helper()
	plan := h.niclane(3, "plan", "--steps", h.lanes)
	bed.Says(h.t, plan, words...)
	h.niclane(0, "apply", h.lanes)
	h.niclane(0, "plan", h.lanes)
	return plan
}

// bond makes bond9 from x0 and x1, which are veths with four queues.
func bond(t *testing.T, mode string) {
	t.Helper()
	bed.Sh(t, "ip link add bond9 type bond mode "+mode+" miimon 100")
	t.Cleanup(func() { bed.Sh(t, "ip link del bond9") })
	for _, n := range []string{"0", "1"} {
		bed.Sh(t, "ip link add x"+n+" numrxqueues 4 numtxqueues 4 type veth peer name y"+n+
			" numrxqueues 4 numtxqueues 4")
		t.Cleanup(func() { _ = exec.Command("ip", "link", "del", "x"+n).Run() }) // no error: the test may have removed it
		bed.Sh(t, "ip link set y"+n+" up")
		bed.Sh(t, "ip link set x"+n+" master bond9")
	}
	bed.Sh(t, "ip link set bond9 up")
}

// restored rolls back. The state must then be the same as before.
func (h *host) restored(before string) {
	h.t.Helper()
	h.niclane(0, "rollback")
	same(h.t, "after rollback", before)
}

func same(t *testing.T, when, before string) {
	t.Helper()
	if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(bed.Dump(t), "\n")); diff != "" {
		t.Errorf("%s (-before +after):\n%s", when, diff)
	}
}

// arrive sends datagrams of flows to the card. All datagrams of a flow must arrive on the same
// queue, one of queues.
func arrive(t *testing.T, queues []int, flows ...bed.Flow) {
	t.Helper()
	const each = 3
	for _, f := range flows {
		before := bed.Stats(t)
		bed.Send(t, each, f)
		for q, n := range bed.PerQueue(t, before, "rx_queue_%d_packets", bed.QueueCount(t)) {
			if n > 0 && !slices.Contains(queues, q) {
				t.Errorf("%v to %v: %d packets on queue %d, want them on %v", f.Src, f.Dst, n, q, queues)
			}
		}
	}
}

// flowsTo returns n flows to a port of the card. Each comes from a port of its own.
func flowsTo(port uint16, n int) (flows []bed.Flow) {
	for i := range n {
		flows = append(flows, bed.In(uint16(2000+7*i), port))
	}
	return flows
}
