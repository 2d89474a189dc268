// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/load/proto/http1"
	"github.com/niclane/niclane/internal/program"
	"github.com/niclane/niclane/internal/testing/must"
)

// The generators run on loadCPU, the servers on serverCPU.
const (
	loadCPU   = 0
	serverCPU = 1
	loadTime  = 5 * time.Second
	loadPairs = 3
)

// A generator is a command that sends requests for loadTime. count returns the number of answered
// requests, from the command's output.
type generator struct {
	name  string
	cmd   func(address string, connections int) *exec.Cmd
	count func(stdout []byte) (int64, error)
}

// BenchmarkLoad compares niclane's generator with common ones, in a closed loop with the same
// server and number of connections: wrk over HTTP, memcslap (the only one in Debian) over
// memcached's protocol, and redis-benchmark over RESP. One metric is thousands of requests per
// second of the generator's processor time (user and system of the process, getrusage), which
// excludes other load on the machine. Another is the ratio of niclane's value to the other
// generator's. kreq/s is thousands of requests per second of real time; if the generator uses less
// than 100 % of its processor, this is the server's limit. All are medians of interleaved rounds.
func BenchmarkLoad(b *testing.B) {
	dir := b.TempDir()
	niclane := filepath.Join(dir, program.Bench)
	build(b, niclane)
	own := func(c load.Config) generator {
		return generator{"niclane", func(address string, connections int) *exec.Cmd {
			c.Mode, c.Address, c.Connections, c.Duration = load.Closed, address, connections, int64(loadTime)
			// Use one window: writing a window takes about 1 ms, and the other generators keep no histograms
			// over time either.
			c.Window = int64(loadTime)
			in, err := json.Marshal(c)
			must.Do(b, err)
			cmd := pinned(loadCPU, niclane, "internal-load")
			cmd.Stdin = bytes.NewReader(in)
			return cmd
		}, func(out []byte) (int64, error) {
			var r load.Result
			if err := json.Unmarshal(out, &r); err != nil {
				return 0, err
			}
			if r.Hits != r.Intended {
				return 0, fmt.Errorf("%d of %d requests were answered well: %s", r.Hits, r.Intended, r.FirstError)
			}
			return r.Completed, nil
		}}
	}
	seconds := strconv.Itoa(int(loadTime / time.Second))
	object := filepath.Join(dir, "1024")
	write(b, object, strings.Repeat("x", 1024))
	nginxConf := filepath.Join(dir, "nginx.conf")
	memcachedWork := load.Config{Keys: 10_000, Prefill: true}
	redisWork := load.Config{Protocol: load.Redis, Keys: 10_000, Prefill: true}
	for _, way := range []struct {
		name   string
		server func(port string) *exec.Cmd
		own    generator
		other  generator
	}{
		{
			"http", func(port string) *exec.Cmd {
				// The server writes no access log and does not limit the requests on a connection.
				write(b, nginxConf, fmt.Sprintf("daemon off; master_process off; worker_processes 1; pid %s/pid; "+
					"error_log /dev/null;\n"+
					"events { worker_connections 1024; }\nhttp { access_log off; keepalive_requests 1000000000; "+
					"sendfile on;\n"+
					"server { listen 127.0.0.1:%s; root %s; } }\n", dir, port, dir))
				return pinned(serverCPU, "nginx", "-c", nginxConf, "-e", "/dev/null")
			},
			own(load.Config{Protocol: load.HTTP,
				Objects: &load.Objects{Paths: []http1.Path{{Path: "/1024", Bytes: 1024}}}}),
			generator{"wrk", func(address string, connections int) *exec.Cmd {
				return pinned(loadCPU, "wrk", "-t1", "-c", strconv.Itoa(connections), "-d", seconds,
					"http://"+address+"/1024")
			}, found(`(\d+) requests in`)},
		},
		{
			"memcached", func(port string) *exec.Cmd {
				return pinned(serverCPU, "memcached", "-u", "nobody", "-l", "127.0.0.1", "-p", port, "-t", "1")
			},
			own(memcachedWork),
			generator{"memcslap", func(address string, connections int) *exec.Cmd {
				// memcslap takes a number of gets, not a time. This number takes about loadTime.
				return pinned(loadCPU, "memcslap", "--servers", address, "--test=get", "--concurrency",
					strconv.Itoa(connections),
					"--execute-number", strconv.Itoa(80_000/connections), "--initial-load=10000", "--tcp-nodelay")
			}, func([]byte) (int64, error) { return 80_000, nil }},
		},
		{
			"redis", func(port string) *exec.Cmd {
				return pinned(serverCPU, "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "",
					"--appendonly", "no")
			},
			own(redisWork),
			generator{"redis-benchmark", func(address string, connections int) *exec.Cmd {
				_, port, _ := net.SplitHostPort(address)
				return pinned(loadCPU, "redis-benchmark", "-p", port, "-c", strconv.Itoa(connections), "-n", "80000",
					"-r", "10000", "-d", "64", "-t", "get", "-q")
			}, func([]byte) (int64, error) { return 80_000, nil }},
		},
	} {
		b.Run(way.name, func(b *testing.B) {
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			address := serveLoad(b, ctx, way.server)
			for b.Loop() {
				for _, connections := range []int{1, 16, 128} {
					perCPU, rate := map[string][]float64{}, map[string][]float64{}
					var ratios []float64
					for i := range loadPairs {
						pair := []generator{way.own, way.other}
						if i%2 == 1 {
							slices.Reverse(pair)
						}
						round := map[string]float64{}
						for _, g := range pair {
							began := time.Now()
							cmd := g.cmd(address, connections)
							out, err := cmd.Output()
							if err != nil {
								b.Fatalf("%s: %v\n%s", cmd, err, out)
							}
							n, err := g.count(out)
							if err != nil {
								b.Fatalf("%s: %v", cmd, err)
							}
							cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
							round[g.name] = float64(n) / cpu.Seconds() / 1000
							perCPU[g.name] = append(perCPU[g.name], round[g.name])
							rate[g.name] = append(rate[g.name], float64(n)/time.Since(began).Seconds()/1000)
						}
						ratios = append(ratios, round[way.own.name]/round[way.other.name])
					}
					for name, v := range perCPU {
						b.ReportMetric(median(v), fmt.Sprintf("kreq/cpu-s-%s/%d", name, connections))
						b.ReportMetric(median(rate[name]), fmt.Sprintf("kreq/s-%s/%d", name, connections))
					}
					b.ReportMetric(median(ratios), fmt.Sprintf("ratio/%d", connections))
				}
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

func pinned(cpu int, args ...string) *exec.Cmd {
	return exec.Command("taskset", append([]string{"-c", strconv.Itoa(cpu)}, args...)...)
}

// found returns a count function. It returns the number in the first match of pattern.
func found(pattern string) func([]byte) (int64, error) {
	return func(out []byte) (int64, error) {
		m := regexp.MustCompile(pattern).FindSubmatch(out)
		if m == nil {
			return 0, fmt.Errorf("no %s in %q", pattern, out)
		}
		return strconv.ParseInt(string(m[1]), 10, 64)
	}
}

// serveLoad starts a server on a free port and waits until the server accepts a connection.
func serveLoad(b *testing.B, ctx context.Context, server func(port string) *exec.Cmd) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(b, err)
	address := l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(address)
	cmd := server(port)
	if _, err := exec.LookPath(cmd.Args[3]); err != nil {
		b.Skip(err)
	}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	must.Do(b, cmd.Start())
	b.Cleanup(func() { _ = cmd.Process.Signal(os.Interrupt); _ = cmd.Wait() })
	for deadline := time.Now().Add(10 * time.Second); ; {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
			return address
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			b.Fatalf("%s: %v\n%s", cmd, err, log.String())
		}
	}
}
