// SPDX-License-Identifier: Apache-2.0

package vethtest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Uplink makes a veth pair with eight queues at each end. It gives the first end the address
// 10.77.0.1/24 and returns its name. It removes the pair when the test ends.
func Uplink(t testing.TB) string {
	t.Helper()
	NeedRoot(t)
	name := fmt.Sprintf("up%d", os.Getpid()%1000)
	IP(t, strings.ReplaceAll(`
		link add DEV numtxqueues 8 numrxqueues 8 type veth peer name DEVp numtxqueues 8 numrxqueues 8
		link set DEV up
		link set DEVp up
		link set lo up
		addr add 10.77.0.1/24 dev DEV`, "DEV", name))
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", name).Run() })
	return name
}
