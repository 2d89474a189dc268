// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"strings"
	"testing"
	"time"
)

// hostPod returns the YAML text of a pod in the host's network, with a server on a port of the
// node.
func hostPod(name, port, resources string) string {
	text := strings.Replace(pod(name, resources, ""), "spec:\n", "spec:\n  hostNetwork: true\n", 1)
	text = strings.Replace(text, `[serve, ":7"]`, `[serve, ":`+port+`"]`, 1)
	return strings.Replace(text, "containerPort: 7", "containerPort: "+port, 1)
}

// redisBytes returns the number of bytes that the lanes of class redis have sent.
func (s *suite) redisBytes(t *testing.T) float64 {
	t.Helper()
	sent, found := s.metric(t, "niclane_class_bytes_total{", `lane="redis-`)
	if !found {
		t.Fatal("no lane of class redis is counted")
	}
	return sent
}

// hostNetwork tests a pod in the host's network. The runtime calls no CNI plugin for it, but
// reports it by NRI.
func (s *suite) hostNetwork(t *testing.T) {
	text := hostPod("hosts", "7", limits("redis"))
	s.remove(t, text)
	p := s.running(t, text, "hosts")
	s.told(t, "hosts")
	before := s.redisBytes(t)
	s.echo(t, p, 1<<20)
	if sent := s.redisBytes(t) - before; sent < 1<<20 {
		t.Errorf("the lane has sent %.0f bytes, want at least the %d that the pod has", sent, 1<<20)
	}
}

// hostByCgroup tests pods in the host's network with a policy that recognises packets by control
// group. The groups exist only while the pods run.
func (s *suite) hostByCgroup(t *testing.T) {
	must(t, s.Apply(strings.Replace(policy, "force: {queue-set: shared}", "force: {queue-set: shared, classifier: "+
		"cgroup-sockops}", 1)))
	s.condition(t, "Applied", "True", "")
	t.Run("one with a lane, one without", s.toldByCgroup)
	must(t, s.Apply(policy))
	s.condition(t, "Applied", "True", "")
}

// toldByCgroup checks that packets of a pod in the host's network leave in its lane, and that those
// of another such pod without a lane do not. A pod with its own address cannot be recognised by
// control group, and an event says so.
func (s *suite) toldByCgroup(t *testing.T) {
	mine, other := hostPod("mine", "7", limits("redis")), hostPod("other", "8", "")
	s.remove(t, mine)
	s.remove(t, other)
	p, o := s.running(t, mine, "mine"), s.running(t, other, "other")
	until(t, time.Minute, "the pod is in its lane by its control group", func() (bool, string) {
		state := s.state(t)
		return strings.Contains(state, `"cgroup":"/kubepods/`), state + s.agentLog(t)
	})
	const bytes = 1 << 20
	before := s.redisBytes(t)
	s.echo(t, p, bytes)
	between := s.redisBytes(t)
	if sent := between - before; sent < bytes {
		t.Errorf("the lane has sent %.0f bytes, want at least the %d that the pod has", sent, bytes)
	}
	s.echoAt(t, o, "8", bytes)
	if sent := s.redisBytes(t) - between; sent > bytes/2 {
		t.Errorf("the lane has sent %.0f bytes of another pod of the host's network", sent)
	}
	own := pod("own", limits("redis"), "")
	s.remove(t, own)
	must(t, s.Apply(own))
	s.stuck(t, "own", "tells members apart by control group")
	s.echo(t, p, 1<<10)
}
