// SPDX-License-Identifier: Apache-2.0

// Package virtual tests queueing in virtual time: the guest of package lab/virtual against the
// formulas of queueing theory, and niclane's mechanisms against goldens. "make virtual" runs it.
package virtual

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/niclane/niclane/internal/testing/labtest"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lab/virtual"
)

// initCommand is the argument by which the guest's kernel starts this program as the first process.
const initCommand = "internal-virtual"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 {
		commands := map[string]func() error{initCommand: func() error { return virtual.Init(os.Args[2]) },
			serveCommand: serveHere, generateCommand: generateHere}
		if f := commands[os.Args[1]]; f != nil {
			if err := f(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// inGuest reports whether the test runs in a guest. If not, it first runs the same test in a guest
// of its own, so that no test changes what another measures. The test then returns. parameters go
// to the guest's kernel.
func inGuest(t *testing.T, parameters ...string) bool {
	t.Helper()
	if virtual.Here() {
		return true
	}
	t.Parallel()
	runGuest(t, virtual.Config{Parameters: parameters})
	return false
}

// runGuest runs the calling test in a guest.
func runGuest(t *testing.T, c virtual.Config) {
	t.Helper()
	if os.Getenv("NICLANE_VIRTUAL") != "1" {
		t.Skip("it takes long: make virtual runs it")
	}
	labtest.NeedVirtual(t)
	self, err := os.Executable()
	must.Do(t, err)
	var names []string
	for name := range strings.SplitSeq(t.Name(), "/") {
		names = append(names, "^"+regexp.QuoteMeta(name)+"$")
	}
	var said bytes.Buffer
	c.Init, c.InitArgs, c.Stall = self, []string{initCommand}, time.Minute
	c.Args = []string{self, "-test.run=" + strings.Join(names, "/"), "-test.v", "-test.timeout=0",
		fmt.Sprintf("-others=%d", *others)}
	c.Stdout, c.Stderr = &said, &said
	err = virtual.Run(t.Context(), c)
	if err != nil {
		t.Errorf("in a guest: %v\n%s", err, &said)
		return
	}
	t.Logf("in a guest:\n%s", &said)
}
