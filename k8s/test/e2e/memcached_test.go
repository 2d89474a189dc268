// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/niclane/niclane/internal/program"
	"github.com/niclane/niclane/internal/testing/programs"
	"github.com/niclane/niclane/k8s/dist/image"
	"github.com/niclane/niclane/k8s/test/cluster"
	"github.com/niclane/niclane/k8s/test/components"
	"github.com/niclane/niclane/k8s/test/hosts"
	"github.com/niclane/niclane/k8s/test/machine"
)

var (
	file = flag.String("file", "../../../experiments/kubernetes-memcached.yaml", "experiment that is run")
	form = flag.String("form", "--quick", "options of niclane bench run: the form of the file")
	out  = flag.String("out", "", "directory for the result")
)

// memcachedImage is the name of the image in experiments/kubernetes-memcached.yaml. The test makes
// an image of this name with Debian's memcached.
const memcachedImage = "docker.io/library/memcached:1.6"

// An experiment is a cluster with niclane but without a policy. Its node is connected to the lab's
// hosts (package hosts).
type experiment struct {
	*suite
	hosts *hosts.Hosts
}

// take copies the experiment file to the control plane's machine, with other resource limits for
// the pod. It changes the policy in it so that lanes share the receive queues.
func (e *experiment) take(t testing.TB, limits string) {
	t.Helper()
	text, err := os.ReadFile(*file)
	must(t, err)
	for from, to := range map[string]string{
		"uplink: {dev: $device, linkRate: $link}": "uplink: {dev: $device, linkRate: $link, force: {queue-set: shared}}",
		"limits: {niclane.dev/memcached: 1}":      limits,
	} {
		if !strings.Contains(string(text), from) {
			t.Fatalf("%s has no %q", *file, from)
		}
		text = []byte(strings.ReplaceAll(string(text), from, to))
	}
	must(t, e.hosts.Write("kubernetes-memcached.yaml", text))
}

func startExperiment(t testing.TB) *experiment {
	s := &suite{Cluster: cluster.Start(t, cluster.Releases[0]), image: buildImage(t)}
	h := hosts.Start(t, s.Cluster, buildNiclane(t))
	archive := filepath.Join(t.TempDir(), "memcached.tar")
	must(t, writeMemcached(archive))
	must(t, s.Import(archive))
	s.installAgent(t)
	kubectl, err := components.Kubectl.Programs(t.Context())
	must(t, err)
	must(t, h.Put("kubectl", filepath.Join(kubectl, "kubectl")))
	e := &experiment{s, h}
	e.take(t, "limits: {niclane.dev/memcached: 1}")
	return e
}

// A run is one running "niclane bench run", with the file that gets its output.
type run struct {
	*machine.Process
	said *os.File
}

// begin starts "niclane bench run" on the control plane's machine.
func (e *experiment) begin(t testing.TB, options string) *run {
	t.Helper()
	must(t, os.RemoveAll(e.Control.OnDisk(hosts.Dir+"/out")))
	said, err := os.Create(filepath.Join(t.TempDir(), "run"))
	must(t, err)
	args := []string{"/usr/bin/env", "PATH=" + hosts.Dir + ":/usr/bin", "KUBECONFIG=/etc/kubernetes/admin.conf",
		"niclane", "bench", "run", hosts.Dir + "/kubernetes-memcached.yaml", "--hosts", hosts.Dir + "/hosts.yaml",
		"--out", hosts.Dir + "/out"}
	p, err := e.Control.Start(machine.Command{Args: append(args, strings.Fields(options)...)}, nil, said)
	must(t, err)
	t.Cleanup(func() {
		_ = p.Signal(unix.SIGTERM)
		_ = p.Wait()
		said.Close()
	})
	return &run{p, said}
}

// end waits for the end of a run, and returns its output, its result and its error. It fails the
// test if the run leaves a pod or a policy.
func (e *experiment) end(t testing.TB, p *run) (string, measured, error) {
	t.Helper()
	ended := p.Wait()
	text, err := os.ReadFile(p.said.Name())
	must(t, err)
	left := e.pods(t)
	list, err := e.Dynamic.Resource(policies).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, p := range list.Items {
		left = append(left, "lanepolicy "+p.GetName())
	}
	if len(left) > 0 {
		t.Errorf("the run has left %v", left)
	}
	var r measured
	if file, err := os.ReadFile(e.Control.OnDisk(hosts.Dir + "/out/result.json")); err == nil {
		must(t, json.Unmarshal(file, &r))
	}
	return string(text), r, ended
}

// pods returns the names of all pods that runs have created.
func (e *experiment) pods(t testing.TB) (names []string) {
	t.Helper()
	list, err := e.Client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{LabelSelector: "niclane.dev/bench"})
	must(t, err)
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// BenchmarkMemcached runs experiments/kubernetes-memcached.yaml on a cluster of the newest release,
// with the documented command. It writes the result, but does not check whether the lane is faster.
func BenchmarkMemcached(b *testing.B) {
	if os.Getenv("NICLANE_TEST_K8S") == "" {
		b.Skip("make bench-k8s-memcached runs a whole cluster")
	}
	e := startExperiment(b)
	text, r, err := e.end(b, e.begin(b, *form))
	b.ReportMetric(0, "ns/op") // hides the time per iteration, which has no meaning here
	fmt.Println(text)          // not b.Log, which truncates it
	if err != nil {
		b.Fatalf("%v\n%s", err, e.agentLog(b))
	}
	if *out != "" {
		must(b, os.CopyFS(filepath.Join(*out, time.Now().UTC().Format("20060102-150405")),
			os.DirFS(e.Control.OnDisk(hosts.Dir+"/out"))))
	}
	inLane(b, r)
}

// TestMemcached checks that the experiment gives the lane to the pod that asks for it. If it cannot
// continue, it must say why. It must leave no pod, however it ends.
func TestMemcached(t *testing.T) {
	if only := os.Getenv("NICLANE_TEST_K8S"); only != "1" && only != cluster.Releases[0].Name {
		t.Skip("make test-k8s runs whole clusters: it takes minutes")
	}
	e := startExperiment(t)
	const short = "--quick --trial"
	t.Run("to its end", func(t *testing.T) {
		text, r, err := e.end(t, e.begin(t, short))
		if err != nil {
			t.Fatalf("%v\n%s\n%s", err, text, e.agentLog(t))
		}
		inLane(t, r)
	})
	t.Run("interrupted", func(t *testing.T) {
		p := e.begin(t, short)
		e.untilPod(t)
		must(t, p.Signal(unix.SIGINT))
		e.fails(t, p, "interrupted")
	})
	t.Run("somebody deletes the pod", func(t *testing.T) {
		p := e.begin(t, short)
		name := e.untilPod(t)
		must(t, e.Client.CoreV1().Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{}))
		e.fails(t, p, "pod default/"+name+": it is being deleted: Running")
	})
	t.Run("no lane left", func(t *testing.T) {
		e.take(t, "limits: {niclane.dev/memcached: 2}")
		e.fails(t, e.begin(t, short), "lane: pod default/memcached-", "no node takes it",
			"1 Insufficient niclane.dev/memcached", "its last event: FailedScheduling")
	})
}

// untilPod waits until the pod of a run is ready, and returns its name.
func (e *experiment) untilPod(t *testing.T) (name string) {
	t.Helper()
	until(t, time.Minute, "the run's pod is ready", func() (bool, string) {
		names := e.pods(t)
		if len(names) != 1 {
			return false, fmt.Sprint(names)
		}
		p, err := e.Client.CoreV1().Pods("default").Get(t.Context(), names[0], metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		name = p.Name
		return ready(p), e.describe(t.Context(), p)
	})
	return name
}

// fails checks that a run ends with an error and that its output contains these texts.
func (e *experiment) fails(t *testing.T, p *run, why ...string) {
	t.Helper()
	text, _, err := e.end(t, p)
	if err == nil {
		t.Error("no error")
	}
	for _, want := range why {
		if !strings.Contains(text, want) {
			t.Errorf("it lacks %q:\n%s", want, text)
		}
	}
}

// measured has the fields of result.json that the tests read.
type measured struct {
	Windows []struct {
		Variant string
		Load    struct{ Completed int64 }
		Machine struct {
			Device struct {
				Classes []struct {
					ID      string
					Packets int64
				}
			}
		}
	}
}

// inLane checks, by the packet counters of the link's HTB classes, that the pod's answers take the
// lane. There must be one class that sends them in every window of the variant "lane". In the
// variant "beside" (a pod without a lane), this class sends nothing. In the variant "off" (no
// policy), no class exists.
func inLane(b testing.TB, r measured) {
	sent := map[string]map[string][]float64{} // packets for each answer, by class and variant
	for _, w := range r.Windows {
		for _, c := range w.Machine.Device.Classes {
			if sent[c.ID] == nil {
				sent[c.ID] = map[string][]float64{}
			}
			sent[c.ID][w.Variant] = append(sent[c.ID][w.Variant], float64(c.Packets)/float64(w.Load.Completed))
		}
	}
	for _, by := range sent {
		// The limit is not 1 packet for each answer: several answers can share a packet, and
		// acknowledgements are packets too.
		if len(by["lane"]) > 0 && len(by["beside"]) > 0 && slices.Min(by["lane"]) > 0.3 &&
			slices.Max(by["beside"]) == 0 && len(by["off"]) == 0 {
			return
		}
	}
	b.Errorf("no class of the link has the answers of the pod with a lane, and nothing else: packets for each "+
		"answer by class and variant: %v", sent)
}

// buildNiclane builds niclane and niclane-bench in a directory that all users can read. It returns
// the path of niclane.
func buildNiclane(b testing.TB) string {
	dir, err := os.MkdirTemp("", "niclane-")
	must(b, err)
	b.Cleanup(func() { os.RemoveAll(dir) })
	must(b, os.Chmod(dir, 0o755))
	programs.Build(b, dir, program.Niclane, program.Bench)
	return filepath.Join(dir, program.Niclane)
}

// writeMemcached writes the archive of an image with this host's memcached and its shared
// libraries.
func writeMemcached(archive string) error {
	path, err := exec.LookPath("memcached")
	if err != nil {
		return fmt.Errorf("%w: apt-get install memcached", err)
	}
	linked, err := exec.Command("ldd", path).Output()
	if err != nil {
		return fmt.Errorf("ldd %s: %w", path, err)
	}
	files := map[string]string{}
	for _, library := range regexp.MustCompile(`(/\S+) \(0x`).FindAllStringSubmatch(string(linked), -1) {
		files[library[1]] = library[1]
	}
	if len(files) == 0 {
		return fmt.Errorf("ldd %s names no libraries:\n%s", path, linked)
	}
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := image.Write(f, image.Config{
		Name: memcachedImage, Arch: runtime.GOARCH, Programs: []string{path}, Files: files, Entrypoint: "/memcached",
	}); err != nil {
		return err
	}
	return f.Close()
}
