// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/cmd/internal/clitest"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/programs"
	"github.com/niclane/niclane/lab"
	"github.com/niclane/niclane/lane/device"
)

type splitBed struct{ *clitest.Bed }

// splitExperiment is an experiment with an nginx on each NUMA node. %[1]s is the lab's name, %[2]s
// the list of processors.
const splitExperiment = `version: 1
title: an instance on each node
lab: {name: %[1]s, sut-cpus: %[2]s, other-cpus: %[2]s}
server:
  kind: command
  command: [nginx, -e, stderr, -c, $scratch/nginx.conf, -p, $scratch]
  user: nobody:nogroup
  split: numa
  port: 8443
  threads: 2
  certificate: on
  cache: {kind: nginx, at: $scratch/var/cache.log}
  files:
    var/README: |
      What nginx writes.
    nginx.conf: |
      daemon off;
      worker_processes $threads;
      error_log stderr warn;
      pid $scratch/var/nginx.pid;
      events { worker_connections 1024; }
      http {
        log_format cache '$$upstream_cache_status $$status $$bytes_sent';
        access_log $scratch/var/cache.log cache;
        keepalive_requests 1000000;
        client_body_temp_path $scratch/var/body;
        proxy_temp_path $scratch/var/proxy;
        fastcgi_temp_path $scratch/var/fastcgi;
        uwsgi_temp_path $scratch/var/uwsgi;
        scgi_temp_path $scratch/var/scgi;
        proxy_cache_path $storage/objects levels=2 keys_zone=objects:1m max_size=100m inactive=1d use_temp_path=off;
        server {
          listen $address:$port ssl reuseport;
          ssl_certificate $scratch/certificate.pem;
          ssl_certificate_key $scratch/key.pem;
          ssl_protocols TLSv1.3;
          location / {
            proxy_pass http://$noise:18000;
            proxy_cache objects;
            proxy_cache_key $$request_uri;
          }
        }
      }
  beside:
    - {name: origin, host: noise, port: 18000, origin: on}
  ready: {timeout: 120s}
workload:
  protocol: https
  tls: {version: 1.3}
  prefill: on
  objects: [{path: /20000/$n, copies: 10, bytes: 20000}]
load: {mode: closed, connections: 64, warmup: 200ms, window: 1s, timeout: 60s}
variants:
  - {name: off}
  - name: lane
    lanes: |
      version: 1
      globals: {dev: $device}
      lanes:
        web: {queues: 1, ports: [$port], cgroup: $cgroup}
repeats: {min: 1}
gates: {hits: 100%%, warn: [client, late, processors, tier, reclaim]}
host-noise: {window: 100ms}
`

// TestBenchSplit runs an experiment with an nginx on each NUMA node, with a lane and without, in
// the lab and on hosts. It checks that each instance's cache is filled, that connections are
// accepted on the node where they arrive, and that nothing is left. labtest.TwoNodes provides the
// nodes.
func TestBenchSplit(t *testing.T) {
	if _, err := exec.LookPath("nginx"); err != nil {
		t.Skip(err)
	}
	b := splitBed{clitest.NewBed(t)}
	// nginx runs as nobody and must be able to read its files.
	for dir := b.Dir; strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
		must.Do(t, os.Chmod(dir, 0o755))
	}
	programs.Build(t, b.Bin, "niclane", "niclane-bench")
	list := "[" + strings.ReplaceAll(device.FormatCPUList(b.CPUs), ",", ", ") + "]"
	own := fmt.Sprintf("bsplit-%d", os.Getpid())
	b.Write("split.yaml", fmt.Sprintf(splitExperiment, own, list))
	t.Run("lab", func(t *testing.T) {
		c := splitBed{b.In(t)}
		c.benched(c.shown(filepath.Join(c.Bin, "niclane"), "bench", "run", "split.yaml", "--out", "out-lab"), "out-lab")
		if left, _ := filepath.Glob("/sys/fs/cgroup/*/" + own + "*"); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
	t.Run("hosts", func(t *testing.T) { splitBed{b.In(t)}.benchedOnHosts() })
}

// shown returns a command on this host. The command sees two NUMA nodes, real or simulated.
func (b splitBed) shown(argv ...string) *exec.Cmd {
	argv = b.Shown(argv...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = b.Dir
	return cmd
}

// benched runs the experiment and checks its result. storage are the directories in which the
// instances keep their objects; if given, benched checks them too.
func (b splitBed) benched(cmd *exec.Cmd, out string, storage ...string) {
	b.Helper()
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	must.Do(b, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if err := b.watched(ended, storage); err != nil {
		b.Fatalf("%v\n%s", err, said.String())
	}
	text, err := os.ReadFile(filepath.Join(b.Dir, out, "result.json"))
	must.Do(b, err)
	var r result.Result
	must.Do(b, json.Unmarshal(text, &r))
	if len(r.Server.Instances) != 2 || len(r.Windows) != 2 {
		b.Fatalf("%d instances, %d windows", len(r.Server.Instances), len(r.Windows))
	}
	for i, x := range r.Server.Instances {
		if want := b.Node[b.CPUs[i]]; x.Node != want || !slices.Equal(x.CPUs, b.CPUs[i:i+1]) ||
			!slices.Equal(x.Mems, []int{b.Mem[want]}) {
			b.Errorf("instance %d: %+v", i, x)
		}
	}
	for _, w := range r.Windows {
		if w.Arrival == nil || w.Arrival.Hash != 0 || w.Arrival.Node < 64 {
			b.Errorf("%s: arrival %+v, want all 64 connections by the node", w.Variant, w.Arrival)
		}
		var requests, running int64
		for _, x := range w.Instances {
			// The caches were filled before, so every request must be a hit. With an empty cache, the first
			// request for each object would be a miss.
			if x.Cache == nil || x.Cache.Requests == 0 || x.Cache.Hits != x.Cache.Requests || x.Process.Running == 0 {
				b.Errorf("%s, node %d: cache %+v, running %d ns", w.Variant, x.Node, x.Cache, x.Process.Running)
				continue
			}
			requests, running = requests+x.Cache.Requests, running+x.Process.Running
		}
		if w.Cache == nil || w.Cache.Requests != requests || requests < w.Load.Completed {
			b.Errorf("%s: %+v, %d of the instances, %d completed", w.Variant, w.Cache, requests, w.Load.Completed)
		}
		if p := w.Machine.Processes; len(p) != 1 || p[0].Name != "server" || p[0].Running != running {
			b.Errorf("%s: processes %+v, want their sum %d", w.Variant, p, running)
		}
	}
	lane := r.Variants[1]
	if !strings.Contains(lane.Lanes, "queues: 2") ||
		!strings.Contains(lane.Lanes, "cpus: "+device.FormatCPUList(b.CPUs)) || strings.Contains(lane.Lanes, "cgroup") {
		b.Errorf("the lane was not divided:\n%s", lane.Lanes)
	}
	if out, _ := exec.Command("pgrep", "-f",
		"nginx.*"+filepath.Join(os.TempDir(), "niclane-bench-")).Output(); len(out) > 0 {
		b.Errorf("still running: %s", out)
	}
}

// watched checks the instances while the experiment runs: where they run, and which objects they
// have stored. It returns the experiment's error.
func (b splitBed) watched(ended <-chan error, storage []string) error {
	b.Helper()
	held, stored := map[int]bool{}, map[string]int{}
	for {
		select {
		case err := <-ended:
			if err != nil {
				return err
			}
			if len(held) != 2 {
				b.Errorf("of the instances %v was seen in a control group", held)
			}
			for _, dir := range storage {
				if stored[dir] != 10 {
					b.Errorf("in %s were %d objects, want all 10", dir, stored[dir])
				}
				if left, _ := os.ReadDir(dir); len(left) > 0 {
					b.Errorf("in %s is left: %v", dir, left)
				}
			}
			return nil
		case <-time.After(20 * time.Millisecond):
		}
		// Skip directories that already had all objects: reading a directory takes processor time from
		// the instances.
		for _, dir := range storage {
			if stored[dir] == 10 {
				continue
			}
			objects, _ := filepath.Glob(dir + "/niclane-bench-*/objects/??/" + strings.Repeat("?", 32))
			stored[dir] = max(stored[dir], len(objects))
		}
		if len(held) == 2 {
			continue
		}
		for _, pattern := range []string{"/sys/fs/cgroup/*/*/instance?/cgroup.procs",
			"/sys/fs/cgroup/*/instance?/cgroup.procs"} {
			groups, _ := filepath.Glob(pattern)
			for _, g := range groups {
				i := int(filepath.Dir(g)[len(filepath.Dir(g))-1] - '0')
				pids, _ := os.ReadFile(g)
				for pid := range strings.FieldsSeq(string(pids)) {
					comm, _ := os.ReadFile("/proc/" + pid + "/comm")
					if i < 2 && !held[i] && string(comm) == "nginx\n" {
						held[i] = true
						b.holds(i, pid)
					}
				}
			}
		}
	}
}

// holds checks that the process pid, of instance i, may use only that instance's processor and its
// node's memory.
func (b splitBed) holds(i int, pid string) {
	b.Helper()
	node := b.Node[b.CPUs[i]]
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return // the process has ended
	}
	if line := fmt.Sprintf("Cpus_allowed_list:\t%d\n", b.CPUs[i]); !strings.Contains(string(status), line) {
		b.Errorf("instance %d: no %q in\n%s", i, line, status)
	}
	if line := fmt.Sprintf("Mems_allowed_list:\t%d\n", b.Mem[node]); !strings.Contains(string(status), line) {
		b.Errorf("instance %d: no %q in\n%s", i, line, status)
	}
	maps, err := os.ReadFile("/proc/" + pid + "/numa_maps")
	if policy := fmt.Sprintf(" bind:%d ", b.Mem[node]); err == nil && len(maps) > 0 &&
		!strings.Contains(string(maps), policy) {
		b.Errorf("instance %d: no %q in its memory's policies:\n%.300s", i, policy, maps)
	}
}

// benchedOnHosts runs the experiment with agents on the hosts of a lab.
func (b splitBed) benchedOnHosts() {
	b.Raise("bhosts")
	// Take the path /usr/sbin/nginx, because agents search /usr/sbin before /sbin.
	nginx, err := exec.LookPath("/usr/sbin/nginx")
	if err != nil {
		b.Skip(err)
	}
	niclane := filepath.Join(b.Bin, "niclane")
	certs := b.CommandOn(lab.Client, niclane, "bench", "certs", "pki", "--hosts", "10.77.0.1,10.77.0.2,10.77.0.3",
		"--client", "me")
	if out, err := certs.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	var storage []string
	for i := range 2 {
		storage = append(storage, filepath.Join(b.Dir, fmt.Sprintf("nvme%d", i)))
		must.Do(b, os.Mkdir(storage[i], 0o755))
	}
	hosts := fmt.Sprintf("version: 1\nsut: {agent: \"10.77.0.1:7411\", address: 10.77.0.1, device: lane0, storage: "+
		"{%d: %q, %d: %q}}\nclients: [{agent: \"10.77.0.2:7411\", address: 10.77.0.2}]\n"+
		"noise: {agent: \"10.77.0.3:7411\", address: 10.77.0.3}\nlink-rate: 500mbit\nauthority: "+
		"pki/ca.pem\ncertificate: pki/me.pem\nkey: pki/me.key\n",
		b.Node[b.CPUs[0]], storage[0], b.Node[b.CPUs[1]], storage[1])
	b.Write("hosts.yaml", hosts)
	for i, host := range []string{lab.SUT, lab.Client, lab.Noise} {
		ip := "10.77.0." + strconv.Itoa(i+1)
		argv := []string{niclane, "--state-dir", filepath.Join(b.Dir, host+".state"), "--run-dir",
			filepath.Join(b.Dir, host+".run"), "bench", "serve", "--lease", "60s", "--listen", ip + ":7411",
			"--cert", "pki/" + ip + ".pem", "--key", "pki/" + ip + ".key", "--ca", "pki/ca.pem", "--client", "me",
			"--dir", filepath.Join(b.Dir, host+".dir")}
		if host == lab.SUT {
			argv = append(argv, "--lanes", "lane0", "--allow-commands", nginx)
		}
		b.agent(host, argv)
	}
	b.benched(b.CommandOn(lab.Client, niclane, "bench", "run", "split.yaml", "--hosts", "hosts.yaml", "--out",
		"out-hosts"), "out-hosts", storage...)
	if left, _ := filepath.Glob("/sys/fs/cgroup/*/niclane-bench-*/instance*"); len(left) > 0 {
		b.Errorf("left: %v", left)
	}
}

// agent starts an agent and returns when it listens.
func (b splitBed) agent(host string, argv []string) {
	b.Helper()
	if host == lab.SUT {
		argv = b.Shown(argv...)
	}
	cmd := b.CommandOn(host, argv...)
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	must.Do(b, err)
	b.Cleanup(func() {
		_ = cmd.Process.Signal(unix.SIGTERM)
		late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		if err := cmd.Wait(); err != nil && b.Failed() {
			b.Logf("agent of %s: %v\n%s", host, err, log.String())
		}
	})
	line := make([]byte, 200)
	if n, err := out.Read(line); err != nil || !strings.Contains(string(line[:n]), "listening") {
		b.Fatalf("agent of %s says %q, %v", host, line[:n], err)
	}
}
