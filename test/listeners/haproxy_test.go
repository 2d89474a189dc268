// SPDX-License-Identifier: Apache-2.0

package listeners

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/niclane/niclane/app"
)

// TestHAProxy tests a server with one process and a listener for each of its threads. The keeper
// must find which thread uses which listener. It looks at what each thread waits for.
func TestHAProxy(t *testing.T) {
	path, err := exec.LookPath("haproxy")
	if err != nil {
		t.Skip("no haproxy here")
	}
	onBed(t, func(b *bed) {
		file := b.TempDir() + "/haproxy.cfg"
		text := fmt.Sprintf(`global
  nbthread 2
  cpu-map auto:1/1-2 0 1
  tune.listener.multi-queue off
defaults
  mode http
  timeout client 20s
  timeout connect 20s
  timeout server 20s
frontend f
  bind 10.77.0.1:%d shards by-thread
  http-request return status 200 content-type text/plain lf-string "%%[thread]\n"
`, port)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Error(err)
			return
		}
		h := b.start(path, "-db", "-f", file).Process.Pid
		// Each answer has the number of the thread. Thread 0 is pinned to processor 0, thread 1 to
		// processor 1.
		where := func(answer string) int { return strings.Index("01", answer) }
		load := b.load()
		if _, err := app.Attach(b.lane, b.listening(app.Listeners{}), app.Target{PID: h}); err != nil {
			t.Error(err)
			return
		}
		b.led(2)
		if on, by := b.aligned(100, where); on != 100 || len(by) != 2 {
			t.Errorf("%d of 100 connections were served on the processor that they came by; by thread %v", on, by)
		}
		load.more(50)
		if _, err := app.Detach(b.options.RunDir, app.Choice{PID: h}); err != nil {
			t.Error(err)
		}
		load.more(50)
		load.end()
	})
}
