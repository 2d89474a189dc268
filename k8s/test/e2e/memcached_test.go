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

	"github.com/niclane/niclane/k8s/dist/image"
	"github.com/niclane/niclane/k8s/test/cluster"
	"github.com/niclane/niclane/k8s/test/components"
	"github.com/niclane/niclane/k8s/test/hosts"
	"github.com/niclane/niclane/k8s/test/machine"
)

var (
	form = flag.String("form", "--quick", "of experiments/kubernetes-memcached.yaml that is run: options of niclane bench run")
	out  = flag.String("out", "", "directory for the result")
)

// memcachedImage is what experiments/kubernetes-memcached.yaml names, with
// Debian's memcached in it.
const memcachedImage = "docker.io/library/memcached:1.6"

// BenchmarkMemcached is the paper's experiment on a cluster of the newest
// release, by the command and the file that anybody runs it with. What it says
// of the lane is the result's to say: nothing is claimed here.
func BenchmarkMemcached(b *testing.B) {
	if os.Getenv("NICLANE_TEST_K8S") == "" {
		b.Skip("make bench-k8s-memcached runs a whole cluster")
	}
	s := &suite{Cluster: cluster.Start(b, cluster.Releases[0]), image: buildImage(b)}
	h := hosts.Start(b, s.Cluster, buildNiclane(b))
	archive := filepath.Join(b.TempDir(), "memcached.tar")
	must(b, writeMemcached(archive))
	must(b, s.Import(archive))
	s.installWith(b, examplePolicy(b))
	s.untilAllocatable(b, "memcached", 1)
	text, r := runExperiment(b, s, h)
	b.ReportMetric(0, "ns/op") // says nothing
	fmt.Println(text)          // a benchmark's log is cut off
	inLane(b, r)
}

// runExperiment types the command on the control plane's machine, and copies
// what comes of it to -out.
func runExperiment(b *testing.B, s *suite, h *hosts.Hosts) (string, measured) {
	kubectl, err := components.Kubectl.Programs(b.Context())
	must(b, err)
	must(b, h.Put("kubectl", filepath.Join(kubectl, "kubectl")))
	must(b, h.Put("kubernetes-memcached.yaml", "../../../experiments/kubernetes-memcached.yaml"))
	log, err := os.Create(filepath.Join(b.TempDir(), "run"))
	must(b, err)
	defer log.Close()
	args := []string{"/usr/bin/env", "PATH=" + hosts.Dir + ":/usr/bin", "KUBECONFIG=/etc/kubernetes/admin.conf",
		"niclane", "bench", "run", hosts.Dir + "/kubernetes-memcached.yaml", "--hosts", hosts.Dir + "/hosts.yaml", "--out", hosts.Dir + "/out"}
	p, err := s.Control.Start(machine.Command{Args: append(args, strings.Fields(*form)...)}, nil, log)
	must(b, err)
	b.Cleanup(func() { _ = p.Signal(unix.SIGTERM); _ = p.Wait() })
	err = p.Wait()
	text, _ := os.ReadFile(log.Name())
	if *out != "" {
		must(b, os.MkdirAll(*out, 0o755))
		must(b, os.CopyFS(filepath.Join(*out, time.Now().UTC().Format("20060102-150405")), os.DirFS(s.Control.OnDisk(hosts.Dir+"/out"))))
	}
	if err != nil {
		b.Fatalf("%v\n%s\n%s", err, text, s.agentLog(b))
	}
	file, err := os.ReadFile(s.Control.OnDisk(hosts.Dir + "/out/result.json"))
	must(b, err)
	var r measured
	must(b, json.Unmarshal(file, &r))
	return string(text), r
}

// measured is what of a result is looked at.
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

// inLane proves by the counters of the link's classes that the pod's answers
// left by the lane in each window of a pod with one, and that nothing did in
// the others'.
func inLane(b *testing.B, r measured) {
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
		// several answers may share a packet; acknowledgements have their own
		if n := len(by["lane"]); n > 0 && slices.Min(by["lane"]) > 0.3 && slices.Max(by["off"]) == 0 {
			return
		}
	}
	b.Errorf("no class of the link has the answers of the pod with a lane, and nothing else: packets for each answer by class and variant: %v", sent)
}

// examplePolicy is examples/kubernetes/memcached.yaml, on the node's link of
// the experiment. On receive the lane shares the queues, as in policy.
func examplePolicy(b *testing.B) string {
	text, err := os.ReadFile("../../../examples/kubernetes/memcached.yaml")
	must(b, err)
	uplink := regexp.MustCompile(`(?m)^  uplink: .*$`)
	if !uplink.Match(text) {
		b.Fatalf("no uplink on a line of its own:\n%s", text)
	}
	name := regexp.MustCompile(`(?m)^metadata: .*$`)
	text = name.ReplaceAll(text, []byte("metadata: {name: test}"))
	return string(uplink.ReplaceAll(text, []byte("  uplink: {dev: lane0, linkRate: "+hosts.LinkRate+", force: {queue-set: shared}}")))
}

// buildNiclane builds the command, where everybody can start it.
func buildNiclane(b *testing.B) string {
	dir, err := os.MkdirTemp("", "niclane-")
	must(b, err)
	b.Cleanup(func() { os.RemoveAll(dir) })
	must(b, os.Chmod(dir, 0o755))
	path := filepath.Join(dir, "niclane")
	build := exec.CommandContext(b.Context(), "go", "build", "-trimpath", "-ldflags", "-X main.version=test", "-o", path, "./cmd/niclane")
	build.Dir, build.Env = "../../..", append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		b.Fatalf("go build: %v\n%s", err, text)
	}
	return path
}

// writeMemcached makes the image from the program and the libraries that it
// is linked with.
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
