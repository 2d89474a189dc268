// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/niclane/niclane/bench/part/errtest"
)

// tree returns the root of a file system with two transmit queues and a sysctl. read returns the
// text of a file in it.
func tree(t *testing.T) (root string, read func(string) string) {
	t.Helper()
	root = t.TempDir()
	for path, text := range map[string]string{
		"proc/sys/net/ipv4/tcp_notsent_lowat": "4294967295\n", "sys/class/net/eth2/threaded": "0\n",
		"sys/class/net/eth2/queues/tx-0/xps_rxqs": "00\n", "sys/class/net/eth2/queues/tx-33/xps_rxqs": "00,00000000\n",
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root, func(path string) string {
		b, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
}

func TestRun(t *testing.T) {
	root, read := tree(t)
	c := Config{root: root, Device: "eth2", Symmetric: true, NAPIThreads: true,
		Sysctls: map[string]string{"net.ipv4.tcp_notsent_lowat": "16384"}}
	looking := c
	looking.Check = true
	_, err := Run(t.Context(), looking)
	errtest.Says(t, "before", err, "want 16384, have 4294967295")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := Run(ctx, c)
		done <- err
	}()
	deadline := time.Now().Add(10 * time.Second)
	for _, err := Run(ctx, looking); err != nil; _, err = Run(ctx, looking) {
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	if got := read("sys/class/net/eth2/queues/tx-33/xps_rxqs"); got != "2,00000000" {
		t.Errorf("queue 33 has the mask %s", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"proc/sys/net/ipv4/tcp_notsent_lowat": "4294967295",
		"sys/class/net/eth2/threaded":             "0",
		"sys/class/net/eth2/queues/tx-0/xps_rxqs": "00", "sys/class/net/eth2/queues/tx-33/xps_rxqs": "00,00000000"} {
		if got := read(path); got != want {
			t.Errorf("%s has %s after it, had %s", path, got, want)
		}
	}
}

// TestFailure: if a setting fails, the settings before it are restored.
func TestFailure(t *testing.T) {
	root, read := tree(t)
	_, err := Run(t.Context(), Config{root: root, Sysctls: map[string]string{"net.ipv4.tcp_notsent_lowat": "1",
		"net.ipv4.tcp_unknown": "1"}})
	errtest.Says(t, "unknown", err, "tcp_unknown: this host")
	if got := read("proc/sys/net/ipv4/tcp_notsent_lowat"); got != "4294967295" {
		t.Errorf("left %s", got)
	}
	for _, c := range []Config{{Sysctls: map[string]string{"kernel.panic": "1"}},
		{Sysctls: map[string]string{"net.../panic": "1"}}, {Symmetric: true, Device: "../eth2"},
		{Symmetric: true, Device: "eth3"}} {
		c.root = root
		if _, err := Run(t.Context(), c); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
}
