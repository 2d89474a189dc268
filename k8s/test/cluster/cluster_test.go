// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"io"
	"net"
	"os"
	"testing"

	"github.com/niclane/niclane/k8s/test/cluster"
	"github.com/niclane/niclane/k8s/test/machine"
)

func TestMain(m *testing.M) {
	machine.Main()
	os.Exit(m.Run())
}

// TestPod checks that a cluster works: a pod is scheduled, runs, and answers by IPv4 and IPv6.
func TestPod(t *testing.T) {
	if os.Getenv("NICLANE_TEST_K8S") == "" {
		t.Skip("make test-k8s runs whole clusters: it takes minutes")
	}
	for _, r := range cluster.Releases {
		if only := os.Getenv("NICLANE_TEST_K8S"); only != "1" && only != r.Name {
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			c := cluster.Start(t, r)
			if err := c.Apply(`
apiVersion: v1
kind: Pod
metadata: {name: echo}
spec:
  containers: [{name: echo, image: ` + cluster.Image + `, imagePullPolicy: Never, args: [serve, ":7"]}]
`); err != nil {
				t.Fatal(err)
			}
			pod := c.UntilRunning("echo")
			if len(pod.Status.PodIPs) != 2 {
				t.Errorf("addresses %v, want one of each family", pod.Status.PodIPs)
			}
			for _, ip := range pod.Status.PodIPs {
				conn, err := c.Control.Dial(t.Context(), "tcp", net.JoinHostPort(ip.IP, "7"))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				conn.Write([]byte("hello"))
				answer := make([]byte, 5)
				if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "hello" {
					t.Errorf("%s: %q, %v", ip.IP, answer, err)
				}
			}
		})
	}
}
