// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bufio"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
)

// TestTC checks that tc(8), run with the command lines in the plan, sends the same requests as
// niclane.
func TestTC(t *testing.T) {
	vethtest.NeedProgram(t, "tc")
	files, err := filepath.Glob("testdata/*.conf")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			ours, theirs := sent(t, "niclane", file, 1), sent(t, "tc", file, 1)
			if diff := cmp.Diff(slices.Sorted(maps.Keys(theirs)), slices.Sorted(maps.Keys(ours))); diff != "" {
				t.Errorf("(-tc +niclane):\n%s", diff)
			}
		})
	}
}

// sent returns the requests to traffic control that a sender makes, recorded by strace. The device
// refuses them all. There must be at least atLeast messages.
func sent(t *testing.T, sender, file string, atLeast int) map[string]bool {
	t.Helper()
	asked, n := map[string]bool{}, 0
	for _, m := range traced(t, "^TestSender$", "WIRE_SENDER="+sender, "WIRE_FILE="+file) {
		if m.generic {
			continue
		}
		lines, err := traffic(m.data)
		must.Do(t, err)
		if len(lines) > 0 {
			n++
		}
		for _, l := range lines {
			asked[l] = true
		}
	}
	if n < atLeast {
		t.Fatalf("%s: %d messages seen, want at least %d", sender, n, atLeast)
	}
	return asked
}

// A message is one message that was sent on a netlink socket.
type message struct {
	generic bool // true: generic netlink; false: rtnetlink
	data    []byte
}

// traced runs a test of this package under strace. It returns all messages that the test and its
// children send.
func traced(t *testing.T, test string, env ...string) []message {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil || os.Geteuid() != 0 {
		t.Skip("not root, or strace is not installed")
	}
	self, err := os.Executable()
	must.Do(t, err)
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := exec.Command(strace, "-f", "-o", trace, "-e", "trace=socket,sendto,sendmsg", "-e", "write=all", "-e",
		"signal=none", self, "-test.run="+test)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return messages(t, trace)
}

// TestSender is not a test of its own. sent runs it as the sender of requests.
func TestSender(t *testing.T) {
	file := os.Getenv("WIRE_FILE")
	if file == "" {
		t.Skip("started by the other tests")
	}
	vethtest.Run(t, 8, func(t *testing.T) {
		c, err := tc.Open()
		must.Do(t, err)
		defer c.Close()
		for _, s := range planned(t, file, vethtest.Dev).Steps {
			switch s.New.(type) {
			case device.Qdisc, device.Flower:
			default:
				continue
			}
			if os.Getenv("WIRE_SENDER") == "niclane" {
				if err := c.Write(nil, s.New); err == nil {
					t.Logf("%s: made", s.Key())
				}
				continue
			}
			for _, line := range s.Commands() {
				words := strings.Fields(line)
				out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
				t.Logf("%s: %v %s", line, err, out)
			}
		}
	})
}

// messages returns the messages in strace's output. Its option -e write prints their bytes.
func messages(t *testing.T, trace string) (out []message) {
	f, err := os.Open(trace)
	must.Do(t, err)
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	open, generic := false, false
	families := map[string]bool{} // by file descriptor: whether the socket is generic netlink
	for in.Scan() {
		// A line of bytes:
		line, dump := strings.CutPrefix(in.Text(), " | ")
		if !dump {
			// "12 socket(AF_NETLINK, SOCK_RAW, NETLINK_GENERIC) = 3", "12 sendto(3, ..."
			if call, fd, ok := strings.Cut(line, ") = "); ok && strings.Contains(call, "socket(") {
				families[fd] = strings.Contains(call, "NETLINK_GENERIC")
			} else if _, args, ok := strings.Cut(line, " send"); ok {
				_, fd, _ := strings.Cut(args, "(")
				fd, _, _ = strings.Cut(fd, ",")
				generic = families[fd]
			}
			open = false
			continue
		}
		if !open {
			out, open = append(out, message{generic: generic}), true
		}
		last := &out[len(out)-1]
		_, line, _ = strings.Cut(line, "  ")
		line = line[:min(len(line), 49)] // 16 bytes, with a second blank in the middle
		last.data = append(last.data, unhex(t, strings.Join(strings.Fields(line), ""))...)
	}
	must.Do(t, in.Err())
	return out
}
