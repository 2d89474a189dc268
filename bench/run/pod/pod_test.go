// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/part/errtest"
	"github.com/niclane/niclane/bench/run/pod"
)

const (
	pending = `{"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}],
 "containerStatuses": [{"name": "app", "state": {"waiting": {"reason": "ContainerCreating"}}}]}`
	running = `{"phase": "Running", "podIP": "10.1.2.3", "conditions": [{"type": "Ready", "status": "True"}],
 "containerStatuses": [{"name": "aside", "image": "x"}, {"name": "app", "image": "memcached:1.6", "imageID": "sha256:abc", "state": {"running": {}}}]}`
	nowhere = `{"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
 "message": "0/1 nodes are available: 1 Insufficient niclane.dev/redis."}]}`
	failed = `{"phase": "Failed", "containerStatuses": [{"name": "app", "state": {"terminated": {"reason": "Error", "exitCode": 71}}}]}`
)

const events = `{"items": [
 {"reason": "FailedScheduling", "message": "no lane left", "lastTimestamp": null, "eventTime": "2026-11-22T08:00:02.000000Z"},
 {"reason": "Scheduled", "message": "earlier", "lastTimestamp": "2026-11-22T08:00:01Z"}]}`

func manifest() map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "memcached", "labels": map[string]any{"app": "cache"}},
		"spec": map[string]any{"containers": []any{
			map[string]any{"name": "app", "image": "memcached:1.6",
				"resources": map[string]any{"limits": map[string]any{"memory": "1Gi"}}},
			map[string]any{"name": "beside", "image": "x"},
		}},
	}
}

// begin creates a pod, which is deleted at the end of the test.
func begin(t *testing.T, w pod.Wanted) *pod.Pod {
	t.Helper()
	w.Manifest = manifest()
	p, err := pod.Start(t.Context(), pod.Kubectl{Config: "/etc/kube.conf", Context: "here"}, w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Delete(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p
}

// ready waits until a pod is ready, at most for limit.
func ready(t *testing.T, p *pod.Pod, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(t.Context(), limit, errors.New("it took too long"))
	defer cancel()
	return p.Ready(ctx)
}

// start creates a pod and waits until it is ready.
func start(t *testing.T, w pod.Wanted) (*pod.Pod, error) {
	t.Helper()
	p := begin(t, w)
	return p, ready(t, p, time.Minute)
}

// TestReady creates a pod, waits until it is ready, and deletes it. It checks what Start adds to the
// manifest.
func TestReady(t *testing.T) {
	f := newFake(t, map[string]string{"watch-1": seen("ADDED", pending) + seen("MODIFIED", running), "hold-1": "",
		"logs": "hello"})
	p, err := start(t, pod.Wanted{Limits: map[string]string{"niclane.dev/redis": "1"}, Run: "r1",
		Longest: 1500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if p.Address() != "10.1.2.3" || p.Server() != "memcached:1.6 (sha256:abc) on node1" || p.Ended() != nil {
		t.Errorf("%s, %s, %v", p.Address(), p.Server(), p.Ended())
	}
	if text, err := p.Log(t.Context()); text != "hello" || err != nil {
		t.Errorf("log %q, %v", text, err)
	}
	var made map[string]any
	if err := json.Unmarshal([]byte(f.read("pod")), &made); err != nil {
		t.Fatal(err)
	}
	name, _ := made["metadata"].(map[string]any)["name"].(string)
	if !strings.HasPrefix(name, "memcached-") || len(name) != len("memcached-")+6 || name != strings.ToLower(name) {
		t.Errorf("name %s", name)
	}
	want := map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"app": "cache", "niclane.dev/bench": "r1"}},
		"spec": map[string]any{"restartPolicy": "Never", "activeDeadlineSeconds": 2.0, "containers": []any{
			map[string]any{"name": "app", "image": "memcached:1.6", "resources": map[string]any{
				"limits": map[string]any{"memory": "1Gi", "niclane.dev/redis": "1"}}},
			map[string]any{"name": "beside", "image": "x"},
		}},
	}
	if diff := cmp.Diff(want, made); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := f.read("group"); got == fmt.Sprint(unix.Getpgrp()) {
		t.Error("kubectl is in this process's group, which Ctrl-C ends")
	}
	if err := p.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	calls := f.read("calls")
	errtest.Has(t, "calls", calls,
		"--kubeconfig=/etc/kube.conf --context=here create ",
		"get pod "+name+" --watch --output-watch-events --output=json --namespace=bench\n",
		"delete pod "+name+" --ignore-not-found --wait --namespace=bench\n")
}

// TestManifestIsKept: Start does not change the given manifest, so one variant's limits are not in
// another variant's pod.
func TestManifestIsKept(t *testing.T) {
	newFake(t, map[string]string{"watch-1": seen("ADDED", running), "hold-1": ""})
	m := manifest()
	p, err := pod.Start(t.Context(), pod.Kubectl{},
		pod.Wanted{Manifest: m, Limits: map[string]string{"niclane.dev/redis": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(manifest(), m); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestFailures: each error names the pod, its state, and the last event about it.
func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"no lane left": {map[string]string{"watch-1": seen("ADDED", nowhere), "hold-1": "", "get": events}, []string{
			"pod bench/memcached-", ": no node takes it: Pending; ", "1 Insufficient niclane.dev/redis",
			"its last event: FailedScheduling: no lane left",
		}},
		"too slow": {map[string]string{"watch-1": seen("ADDED", pending), "hold-1": "", "get": events}, []string{
			"pod bench/memcached-", "not ready: it took too long: Pending; container app: ContainerCreating; its " +
				"last event: FailedScheduling",
		}},
		"ended": {map[string]string{"watch-1": seen("ADDED", pending) + seen("MODIFIED", failed), "hold-1": ""},
			[]string{
				"it has ended: Failed; container app: Error (exit code 71)",
			}},
		"being deleted": {map[string]string{"hold-1": "",
			"watch-1": strings.Replace(seen("MODIFIED", running), `"uid": "u1"`,
				`"uid": "u1", "deletionTimestamp": "2026-11-22T08:00:03Z"`, 1),
		}, []string{"it is being deleted: Running"}},
		"deleted": {map[string]string{"watch-1": seen("ADDED", pending) + seen("DELETED", pending), "hold-1": ""},
			[]string{
				"it was deleted: Pending",
			}},
		"deleted between two watches": {map[string]string{"watch-1": seen("ADDED", pending)}, []string{
			"it was deleted: Pending",
		}},
		"nobody watches": {map[string]string{"fail-get": "Unable to connect to the server: EOF\n"}, []string{
			"not ready: it took too long", "it cannot be watched: kubectl get: Unable to connect to the server: EOF",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			newFake(t, c.files)
			p := begin(t, pod.Wanted{Patience: 50 * time.Millisecond})
			deadline := time.Now().Add(time.Minute)
			for {
				err := ready(t, p, 100*time.Millisecond)
				if err == nil {
					t.Fatal("no error")
				}
				missing := slices.DeleteFunc(slices.Clone(c.want),
					func(want string) bool { return strings.Contains(err.Error(), want) })
				if len(missing) == 0 {
					return
				}
				if time.Now().After(deadline) {
					t.Fatalf("%v\nlacks %q", err, missing)
				}
			}
		})
	}
}

// TestPatience: if a pod gets a node only after a while, that is no error.
func TestPatience(t *testing.T) {
	newFake(t, map[string]string{"watch-1": seen("ADDED", nowhere) + seen("MODIFIED", running), "hold-1": ""})
	if _, err := start(t, pod.Wanted{Patience: time.Minute}); err != nil {
		t.Error(err)
	}
}

// TestWatchedAgain: if the API server ends a watch while the pod runs, a new watch begins.
func TestWatchedAgain(t *testing.T) {
	newFake(t, map[string]string{"watch-1": seen("ADDED", pending), "watch-2": seen("ADDED", running), "hold-2": ""})
	p, err := start(t, pod.Wanted{})
	if err != nil || p.Address() != "10.1.2.3" {
		t.Errorf("%v, at %q", err, p.Address())
	}
}

// TestEndsLater: Over and Ended report the end of a pod that was ready before.
func TestEndsLater(t *testing.T) {
	newFake(t, map[string]string{"watch-1": seen("ADDED", running), "watch-2": seen("ADDED", failed)})
	p, err := start(t, pod.Wanted{})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.Over():
	case <-time.After(30 * time.Second):
		t.Fatal("it does not end")
	}
	errtest.Says(t, "ended", p.Ended(), "exit code 71")
}

// TestInterrupted: Delete works after the context of Start has ended.
func TestInterrupted(t *testing.T) {
	f := newFake(t, map[string]string{"watch-1": seen("ADDED", pending), "hold-1": ""})
	ctx, cancel := context.WithCancelCause(t.Context())
	p, err := pod.Start(ctx, pod.Kubectl{}, pod.Wanted{Manifest: manifest()})
	if err != nil {
		t.Fatal(err)
	}
	cancel(errors.New("interrupted"))
	errtest.Says(t, "interrupted", p.Ready(ctx), "not ready: interrupted")
	if f.read("pod") == "" {
		t.Error("it is gone before it is deleted")
	}
	if err := p.Delete(context.Background()); err != nil {
		t.Error(err)
	}
	if f.read("pod") != "" {
		t.Error("it is still there")
	}
}

// TestNotMade: after an error of create, Delete deletes the pod, which may exist nevertheless.
func TestNotMade(t *testing.T) {
	f := newFake(t, map[string]string{"fail-create": "Warning: something\nError from server (Forbidden): pods is " +
		"forbidden\n"})
	p, err := pod.Start(t.Context(), pod.Kubectl{}, pod.Wanted{Manifest: manifest()})
	if err == nil || !strings.HasSuffix(err.Error(), ": kubectl create: Error from server (Forbidden): pods is "+
		"forbidden") || !strings.HasPrefix(err.Error(), "pod memcached-") {
		t.Error(err)
	}
	if err := p.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	if calls := f.read("calls"); !strings.Contains(calls, "delete pod memcached-") {
		t.Error(calls)
	}
}

// TestNotDeleted: if a pod cannot be deleted, the error says how the user can delete it.
func TestNotDeleted(t *testing.T) {
	f := newFake(t, map[string]string{"watch-1": seen("ADDED", running), "hold-1": "",
		"fail-delete": "Unable to connect\n"})
	p, err := pod.Start(t.Context(), pod.Kubectl{}, pod.Wanted{Manifest: manifest()})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Delete(t.Context()); err == nil || !strings.Contains(err.Error(), "Unable to connect; to delete it: "+
		"kubectl delete pod memcached-") || !strings.HasSuffix(err.Error(), "--namespace=bench") {
		t.Error(err)
	}
	if err := os.Remove(f.dir + "/fail-delete"); err != nil {
		t.Fatal(err)
	}
	if err := p.Delete(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestVersion(t *testing.T) {
	for name, c := range map[string]struct {
		files      map[string]string
		want, fail string
	}{
		"a cluster": {map[string]string{"version": `{"clientVersion": {}, "serverVersion": {"gitVersion": "v1.36.3"}}`},
			"v1.36.3", ""},
		"none": {map[string]string{"version": `{"clientVersion": {"gitVersion": "v1.36.3"}}`}, "",
			"is there a cluster in its configuration?"},
		"unreachable": {map[string]string{"fail-version": "The connection to the server localhost:8080 was refused\n"},
			"", "kubectl version: The connection to the server localhost:8080 was refused"},
	} {
		newFake(t, c.files)
		got, err := pod.Kubectl{}.Version(t.Context())
		if got != c.want || (err == nil) != (c.fail == "") || err != nil && !strings.Contains(err.Error(), c.fail) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	t.Setenv("PATH", t.TempDir())
	_, err := (pod.Kubectl{}).Version(t.Context())
	errtest.Says(t, "no kubectl", err, "kubectl is not on the PATH")
}
