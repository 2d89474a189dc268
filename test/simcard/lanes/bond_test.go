// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/test/simcard/bed"
)

// TestBond checks that the lanes of a bond are made on its slaves. A slave that leaves the bond
// must get its earlier state back. When it returns, the watch must make the lanes on it again.
func TestBond(t *testing.T) {
	bed.Guest(t) // a guest is needed because Debian's kernel has bonds
	h := &host{t: t, dir: t.TempDir()}
	h.write("globals: {bond: bond9, link-rate: 1gbit, force: {queue-set: shared}}\nlanes:\n  web: {queues: 1, " +
		"ports: [80], guarantee: 20%}\n")
	bond(t, "active-backup")
	shaped := func(dev string) bool { return strings.Contains(bed.Sh(t, "tc qdisc show dev "+dev), " 1: root") }
	h.niclane(0, "apply", h.lanes)
	if !shaped("x0") || !shaped("x1") || shaped("bond9") {
		t.Errorf("shaped: x0 %v, x1 %v, bond9 %v; want the slaves alone", shaped("x0"), shaped("x1"), shaped("bond9"))
	}
	h.niclane(0, "verify", "--for", "0")

	// First, the user applies the changes.
	bed.Sh(t, "ip link set x1 nomaster")
	bed.Says(t, h.niclane(3, "verify", "--for", "0"), "bond/bond9/x1", "carries nothing of bond9")
	h.niclane(0, "apply", h.lanes)
	if !shaped("x0") || shaped("x1") {
		t.Errorf("x1 has left; shaped: x0 %v, x1 %v", shaped("x0"), shaped("x1"))
	}
	h.niclane(0, "verify", "--for", "0")

	// Then, a watch applies them.
	log, err := os.Create(filepath.Join(h.dir, "watch"))
	must.Do(t, err)
	watch := exec.Command(os.Getenv("NICLANE_BINARY"), "--state-dir", filepath.Join(h.dir, "state"), "--run-dir",
		filepath.Join(h.dir, "run"), "watch", "--listen", "none", h.lanes)
	watch.Stdout, watch.Stderr = log, log
	must.Do(t, watch.Start())
	defer func() {
		_ = watch.Process.Signal(unix.SIGTERM)
		_ = watch.Wait()
		if t.Failed() {
			t.Log(bed.Read(t, log.Name()))
		}
	}()
	bed.Until(t, "the watch", func() bool { return bed.Read(t, log.Name()) != "" })
	bed.Sh(t, "ip link set x1 down")
	bed.Sh(t, "ip link set x1 master bond9")
	bed.Until(t, "lanes on the slave that came", func() bool { return shaped("x1") })
	bed.Sh(t, "ip link set x1 nomaster")
	bed.Until(t, "no lanes on the slave that left", func() bool { return !shaped("x1") })
	if !shaped("x0") {
		t.Error("x0 has lost its lanes")
	}
	h.niclane(0, "verify", "--for", "0")
	h.niclane(0, "rollback")
	if shaped("x0") || shaped("x1") {
		t.Error("something is left after rollback")
	}
}
