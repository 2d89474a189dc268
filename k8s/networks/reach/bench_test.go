// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/niclane/niclane/internal/testing/vethtest"
)

// BenchmarkOnDevice compares Links.OnDevice with the function OnDevice, which lists all links each
// time. It measures with the links of 1 pod and of 110 pods.
func BenchmarkOnDevice(b *testing.B) {
	vethtest.NeedRoot(b)
	pod := []netip.Addr{netip.MustParseAddr("10.98.0.1"), netip.MustParseAddr("fd00::1")}
	for _, n := range []int{1, 110} {
		var add, del []string
		for i := range n {
			add = append(add, fmt.Sprintf("link add veth%d up type veth peer name pod%d", i, i))
			del = append(del, fmt.Sprintf("link del veth%d", i))
		}
		vethtest.IP(b, strings.Join(add, "\n"))
		for name, ask := range map[string]func(string, []netip.Addr, []netip.Addr) ([]string, error){
			"/Links": new(Links).OnDevice, "/all": OnDevice} {
			b.Run(fmt.Sprint(n, name), func(b *testing.B) {
				for b.Loop() {
					if _, err := ask("", nil, pod); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		vethtest.IP(b, strings.Join(del, "\n"))
	}
}
