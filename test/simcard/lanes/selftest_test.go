// SPDX-License-Identifier: Apache-2.0

package lanes

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/selftest"
	"github.com/niclane/niclane/test/simcard/bed"
)

// TestSelftest runs a selftest, with an agent at the other end of the wire. The report must say
// what the card really does.
func TestSelftest(t *testing.T) {
	h := plug(t, "", ice...)
	h.agent()
	before := bed.Dump(t)
	cases := []string{"tcp4 port", "tcp4 remote port", "udp4 port", "tcp4 port, ceiling 50%", "mapper xps-rxqs"}
	args := []string{
		"selftest", bed.Dev, "--yes", "--peer", bed.WireAddr.String(), "--for", "1s", "--rounds", "0", "--out",
		filepath.Join(h.dir, "out"),
		"--cert", h.pki("niclane-bench.pem"), "--key", h.pki("niclane-bench.key"), "--ca", h.pki("ca.pem"),
	}
	for _, c := range cases {
		args = append(args, "--case", c)
	}
	t.Log(h.niclane(0, args...))
	r, err := selftest.ReadFile(filepath.Join(h.dir, "out", "selftest.json"))
	must.Do(t, err)
	for i, c := range r.Cases {
		want := selftest.OK
		if i == len(cases)-1 {
			want = selftest.Refused // this mechanism does not work with classes
		}
		if c.Outcome != want {
			t.Errorf("%s: got %s %q, want %s", c.Name, c.Outcome, c.Reasons, want)
		}
		if by := c.MadeBy(); want == selftest.OK && !strings.HasPrefix(by,
			"mqprio-channel, flower-hw-tc, mqprio-channel") {
			t.Errorf("%s: made by %s", c.Name, by)
		}
	}
	if lane, others := r.Lost(); len(r.Left) > 0 || lane+others > 0 {
		t.Errorf("left %v, lost %d and %d connections", r.Left, lane, others)
	}
	h.restored(before)
}

func (h *host) pki(name string) string { return filepath.Join(h.dir, "pki", name) }

// agent runs an agent at the other end of the wire, until the test ends.
func (h *host) agent() {
	h.t.Helper()
	peer := bed.WireAddr.String()
	h.niclane(0, "bench", "certs", filepath.Join(h.dir, "pki"), "--hosts", peer)
	dir := h.t.TempDir()
	cmd := exec.Command("ip", "netns", "exec", bed.Peer, os.Getenv("NICLANE_BINARY"), "--state-dir",
		filepath.Join(dir, "state"), "--run-dir", filepath.Join(dir, "run"),
		"bench", "serve", "--listen", peer+":7411", "--cert", h.pki(peer+".pem"), "--key", h.pki(peer+".key"), "--ca",
		h.pki("ca.pem"), "--dir", filepath.Join(dir, "agent"))
	out, err := os.Create(filepath.Join(dir, "out"))
	must.Do(h.t, err)
	cmd.Stdout, cmd.Stderr = out, out
	must.Do(h.t, cmd.Start())
	h.t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if h.t.Failed() {
			text, _ := os.ReadFile(out.Name())
			h.t.Logf("the agent: %s", text)
		}
		_ = out.Close()
	})
	bed.Until(h.t, "the agent", func() bool {
		text, err := os.ReadFile(out.Name())
		return err == nil && bytes.Contains(text, []byte("listening"))
	})
}
