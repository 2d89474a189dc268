// SPDX-License-Identifier: Apache-2.0

package services_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/cgroup"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/live/services"
)

// serverArg is the argument with which the test's executable listens at the addresses that follow
// ("tcp/10.9.0.1:80", "udp/:53"), prints a line, and ends with its standard input.
const serverArg = "test-server"

func TestMain(m *testing.M) {
	vethtest.Main(m, vethtest.Isolate, map[string]func([]string) error{serverArg: serve})
}

func serve(args []string) error {
	var open []any // the runtime closes what is not used any more
	for _, a := range args {
		protocol, addr, _ := strings.Cut(a, "/")
		l, err := listen(protocol, addr)
		if err != nil {
			return err
		}
		open = append(open, l)
	}
	defer runtime.KeepAlive(open)
	fmt.Println("listening")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// listen opens a listening socket with SO_REUSEPORT. tcp4, tcp6 (IPV6_V6ONLY), tcp, and the same for udp.
func listen(protocol, addr string) (any, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		cerr := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		})
		return errors.Join(cerr, err)
	}}
	if strings.HasPrefix(protocol, "udp") {
		return lc.ListenPacket(context.Background(), protocol, addr)
	}
	return lc.Listen(context.Background(), protocol, addr)
}

// server starts a server in the calling thread's network namespace, in a control group if dir is not "".
func server(t *testing.T, dir string, listen ...string) int {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", append([]string{serverArg}, listen...)...)
	in, err := cmd.StdinPipe()
	must.Do(t, err)
	out, err := cmd.StdoutPipe()
	must.Do(t, err)
	cmd.Stderr = os.Stderr
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	if dir != "" {
		must.Do(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, cmd.Process.Pid), 0))
	}
	if n, err := out.Read(make([]byte, 100)); n == 0 {
		t.Fatalf("the server at %s does not listen: %v", listen, err)
	}
	return cmd.Process.Pid
}

// group makes a control group in the unified hierarchy, or else in version 1's cpuset, and returns
// its directory.
func group(t *testing.T, path string) string {
	t.Helper()
	c, err := cgroup.Find(nil)
	must.Do(t, err)
	roots := cgroup.Roots(c)
	if len(roots) == 0 {
		t.Skip("no control groups are mounted")
	}
	dir := roots[0]
	for _, name := range strings.Split(strings.Trim(path, "/"), "/") {
		dir = filepath.Join(dir, name)
		if err := os.Mkdir(dir, 0o755); err == nil {
			made := dir
			t.Cleanup(func() { must.Do(t, cgroup.Remove(made)) })
		} else if !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	return dir
}

// TestFind: owners, addresses and devices of listening sockets.
func TestFind(t *testing.T) {
	vethtest.NeedRoot(t)
	id := strings.Repeat("ab01", 16)
	parent := fmt.Sprintf("/niclane-services-%d", os.Getpid())
	unit := group(t, parent+"/cache.service")
	container := group(t, parent+"/docker-"+id+".scope")
	vethtest.Run(t, 1, func(t *testing.T) {
		vethtest.IP(t, `link set lo up
addr add 10.9.0.1/24 dev v0
addr add fd09::1/64 dev v0 nodad
addr add 10.8.0.1/24 dev v1
addr add 192.0.2.53/32 dev lo
link add p0 type veth peer name p1
link set p0 up
link set p1 up
addr add 10.7.0.1/24 dev p0`)
		inUnit := server(t, unit, "tcp4/10.9.0.1:80", "tcp6/[fd09::1]:80", "tcp/:443", "udp/:443")
		inContainer := server(t, container, "tcp4/10.8.0.1:6379")
		shared := []int{server(t, "", "tcp4/10.7.0.1:7000"), server(t, "", "tcp4/10.7.0.1:7000", "tcp4/127.0.0.1:7001")}
		anycast := server(t, "", "udp4/192.0.2.53:53")
		var away int
		vethtest.Run(t, 1, func(t *testing.T) { away = server(t, unit, "tcp4/0.0.0.0:9000", "udp4/127.0.0.1:9001") })

		inv, err := services.Find(t.Context())
		must.Do(t, err)
		type found struct {
			unit, container, runtime, cgroup string
			pids                             []int
			endpoints                        []string
		}
		var got []found
		for _, s := range inv.Services {
			f := found{unit: s.Unit, container: s.Container, runtime: s.Runtime}
			if s.Unit != "" || s.Container != "" { // else the test's own
				f.cgroup = s.Cgroup
			}
			for _, p := range s.Processes {
				f.pids = append(f.pids, p.PID)
			}
			for _, e := range s.Endpoints {
				f.endpoints = append(f.endpoints, fmt.Sprintf("%s %v %d %v %v", e.Of(), e.Addrs, e.Listeners, e.ReusePort,
					e.Devices))
			}
			got = append(got, f)
		}
		slices.SortFunc(got, func(a, b found) int { return a.pids[0] - b.pids[0] })
		all := "[p0 v0 v1]"
		want := []found{
			{unit: "cache.service", cgroup: parent + "/cache.service", pids: []int{inUnit}, endpoints: []string{
				"tcp/80 [10.9.0.1 fd09::1] 2 false [v0]", "tcp/443 [::] 1 false " + all, "udp/443 [::] 1 false " + all}},
			{container: id, runtime: "docker", cgroup: parent + "/docker-" + id + ".scope", pids: []int{inContainer},
				endpoints: []string{"tcp/6379 [10.8.0.1] 1 false [v1]"}},
			{pids: shared, endpoints: []string{"tcp/7000 [10.7.0.1] 2 true [p0]", "tcp/7001 [127.0.0.1] 1 false []"}},
			{pids: []int{anycast}, endpoints: []string{"udp/53 [192.0.2.53] 1 false " + all}},
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(found{})); diff != "" {
			t.Errorf("services (-want +got):\n%s", diff)
		}
		paths := []services.Path{{Device: "p0", Kind: "veth"}, {Device: "v0", Kind: "veth"}, {Device: "v1", Kind: "veth"}}
		if diff := cmp.Diff(paths, inv.Paths); diff != "" {
			t.Errorf("paths (-want +got):\n%s", diff)
		}
		i := slices.IndexFunc(inv.Elsewhere, func(n services.Namespace) bool { return n.Unit == "cache.service" })
		if i < 0 {
			t.Fatalf("the other namespace is missing: %+v", inv.Elsewhere)
		}
		other := services.Namespace{Unit: "cache.service", PIDs: []int{away}, Listening: []string{"tcp/9000"}}
		if diff := cmp.Diff(other, inv.Elsewhere[i], cmpopts.IgnoreFields(other, "ID", "Process")); diff != "" {
			t.Errorf("elsewhere (-want +got):\n%s", diff)
		}

		dir := group(t, parent+"/silent.service")
		silent := exec.Command("sleep", "100")
		must.Do(t, silent.Start())
		t.Cleanup(func() {
			_ = silent.Process.Kill()
			_ = silent.Wait()
		})
		must.Do(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"),
			fmt.Append(nil, silent.Process.Pid), 0))
		for _, c := range []struct {
			query services.Query
			ports []string // that it names
			err   string
		}{
			{services.Query{Unit: "cache"}, []string{"tcp/80", "tcp/443", "udp/443"}, ""},
			{services.Query{Unit: "silent.service"}, nil, "unit silent.service runs, but none of its processes listens here"},
			{services.Query{Unit: "none-" + parent[1:]}, nil, "no unit none-" + parent[1:] + ".service runs here"},
			{services.Query{Container: id[:12]}, []string{"tcp/6379"}, ""},
			{services.Query{Container: id[:11]}, nil, "no container " + id[:11] + " runs here: want its complete ID, or the " +
				"first 12 digits or more"},
			{services.Query{PID: shared[1]}, []string{"tcp/7000", "tcp/7001"}, ""},
			{services.Query{PID: silent.Process.Pid}, nil, fmt.Sprintf("process %d (sleep) has no listening socket",
				silent.Process.Pid)},
			{services.Query{PID: inv.Elsewhere[i].Process.PID}, nil, "is in another network namespace"},
			{services.Query{PID: 1 << 30}, nil, "no process 1073741824"},
			{services.Query{Port: 443}, []string{"tcp/443", "udp/443"}, ""},
			{services.Query{Port: 443, Protocol: "udp"}, []string{"udp/443"}, ""},
			{services.Query{Port: 9000}, nil, "nothing listens at tcp or udp port 9000 here"},
		} {
			var named []string
			for i := range inv.Services {
				for j := range inv.Services[i].Endpoints {
					if s, e := &inv.Services[i], &inv.Services[i].Endpoints[j]; c.query.Accepts(s, e) {
						named = append(named, e.Of())
					}
				}
			}
			if diff := cmp.Diff(c.ports, named); diff != "" {
				t.Errorf("%+v (-want +got):\n%s", c.query, diff)
			}
			if err := inv.Check(c.query); (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%+v: got %v, want %q", c.query, err, c.err)
			}
		}
	})
}
