// SPDX-License-Identifier: Apache-2.0

package scale_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/niclane/niclane/internal/testing/badapi"
)

// Times of TestChaos. docs/kubernetes.md states converges.
const (
	faulty    = 6 * time.Second  // how long a fault lasts
	converges = 90 * time.Second // between the end of a fault and a cluster that has what it should
)

// TestChaos lets the API server misbehave in each way while a policy is changed. Neither the
// controller nor an agent starts again. They ask the API server only so often, and send no storm of
// events. Afterwards the change reaches all nodes.
func TestChaos(t *testing.T) {
	// A connection without an answer is given up after 6 s, not 45: these are client-go's own settings.
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "3")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "3")
	s := start(t)
	const n = 20
	for i, fault := range badapi.All {
		t.Run(fault.Name, func(t *testing.T) {
			// New processes each time: client-go waits longer after each failure, for two minutes.
			api := badapi.New(t, badapi.Before(t, s.Config.Host))
			f := &fleet{Server: s, host: api.URL}
			f.join(t, n)
			c := startController(t, s, api.URL)
			if i == 0 {
				if err := s.ApplyText(t.Context(), policy); err != nil {
					t.Fatal(err)
				}
			}
			f.untilReady(t, int64(1+i), n)
			events := f.events(t)
			requests, connections, begin := total(api), api.Connections(), time.Now()
			api.Set(fault.Fault)
			if err := s.ApplyText(t.Context(), strings.Replace(policy, "queues: 2", fmt.Sprint("queues: ", 3+i), 1)); err != nil {
				t.Fatal(err)
			}
			until(t, "the fault has lasted", func() bool { return time.Since(begin) > faulty })
			api.Set(badapi.None)
			requests, connections = total(api)-requests, api.Connections()-connections
			begin = time.Now()
			f.untilReady(t, int64(2+i), n)
			took := time.Since(begin)
			t.Logf("during the fault: %d requests, %d new connections; %.1f s after it the change is everywhere; %d events",
				requests, connections, took.Seconds(), f.events(t)-events)
			if took > converges {
				t.Errorf("the change took %v after the fault, want %v", took, converges)
			}
			// There are n agents with three watches each, and the controller. Each has a few tries in
			// this time: client-go's pause between two grows from 0.8 s.
			if limit := 15 * (3*n + 10); requests > limit {
				t.Errorf("%d requests during the fault, want at most %d", requests, limit)
			}
			if limit := 4 * (n + 2); connections > limit {
				t.Errorf("%d connections during the fault, want at most %d", connections, limit)
			}
			if got := f.events(t) - events; got > 6 {
				t.Errorf("%d new events, want a few", got)
			}
			if !c.healthy() {
				t.Error("the controller is not healthy any more: kubelet would restart it")
			}
		})
	}
}

func total(s *badapi.Server) (n int) {
	for _, count := range s.Requests() {
		n += count
	}
	return n
}

// events returns the number of events in the cluster. One that was sent several times counts each
// time.
func (f *fleet) events(t *testing.T) (n int) {
	t.Helper()
	list, err := f.Client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if list.Items[i].InvolvedObject.Kind == "LanePolicy" || list.Items[i].InvolvedObject.Kind == "Node" {
			n += int(max(1, list.Items[i].Count))
		}
	}
	return n
}
