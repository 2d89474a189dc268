// SPDX-License-Identifier: Apache-2.0

package vethtest

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/niclane/niclane/internal/testing/must"
)

// TCP returns a TCP counter of the calling thread's network namespace. name is its name in
// /proc/net/snmp.
func TCP(t testing.TB, name string) (n int) {
	t.Helper()
	b, err := os.ReadFile("/proc/thread-self/net/snmp")
	must.Do(t, err)
	var names []string
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		switch {
		case f[0] != "Tcp:":
		case names == nil:
			names = f
		default:
			for i := range f {
				if names[i] == name {
					if _, err := fmt.Sscan(f[i], &n); err != nil {
						t.Fatal(err)
					}
					return n
				}
			}
		}
	}
	t.Fatalf("no counter %s", name)
	return 0
}
