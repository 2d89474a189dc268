// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/niclane/niclane/lane/device"
)

// An Advice says how to configure one application so that it fits a lane.
type Advice struct {
	Application string `json:"application"`
	// Since is the first version of the application that has these settings.
	Since    string   `json:"since,omitempty"`
	Settings []string `json:"settings,omitempty"`
	// Why gives the reasons. Cautions say what the settings do not do, or what makes them useless.
	Why      []string `json:"why"`
	Cautions []string `json:"cautions,omitempty"`
	Source   string   `json:"source"`
}

// Applications returns the names that Advise accepts. Advise("") returns its results in the same
// order.
func Applications() []string {
	var names []string
	for _, a := range advisors {
		names = append(names, a.name)
	}
	return names
}

var advisors = []struct {
	name string
	of   func(Lane) Advice
}{
	{"memcached", memcached}, {"nginx", nginx}, {"haproxy", haproxy}, {"varnish", varnish}, {"aerospike", aerospike},
	{"spdk", spdk},
}

// Advise returns the settings with which application name fits the lane. If name is "", it returns
// the settings of all applications. If name is unknown, the error lists the known names.
func Advise(l Lane, name string) ([]Advice, error) {
	var out []Advice
	for _, a := range advisors {
		if name == "" || a.name == name {
			out = append(out, a.of(l))
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("found %q, want one of %s", name, strings.Join(Applications(), ", "))
	}
	return out, nil
}

// byNAPI returns the cautions for applications that choose a connection's thread by NAPI ID.
func byNAPI(l Lane) []string {
	var out []string
	if l.Handed {
		out = append(out, fmt.Sprintf("not in this lane: XDP hands its packets to other processors, and connections "+
			"then have no NAPI ID (niclane plan refuses %q)", "aligned"))
	}
	if len(l.Fitted) > 1 {
		out = append(out, "the lane has several devices, each with NAPIs of its own: all of them are counted here")
	}
	return out
}

func memcached(l Lane) Advice {
	n := l.Queues()
	return Advice{
		Application: "memcached", Since: "1.6.9",
		Settings: []string{fmt.Sprintf("niclane run --lane %s -- memcached -t %d -N %[2]d", l.Name, n)},
		Why: []string{
			fmt.Sprintf("each of the lane's %s has a worker thread, and each connection goes to the worker with its "+
				"queue's NAPI ID", count(n, "queue")),
			"if -N is below the number of NAPI IDs, memcached drops its whole map each time another ID appears " +
				"(stats: unexpected_napi_ids); if -N is above it, workers stay idle",
		},
		Cautions: append(byNAPI(l),
			"workers take NAPI IDs in the order in which the IDs appear, not by processor: it is chance which worker "+
				"is near which queue",
			"connections without a NAPI ID (from this host itself) are distributed round-robin (stats: "+
				"round_robin_fallback)",
			"NAPI IDs change when channels or links are reset: existing connections stay with their workers"),
		Source: "memcached doc/napi_ids.txt, https://github.com/memcached/memcached/pull/712",
	}
}

func nginx(l Lane) Advice {
	cpus := l.CPUs()
	return Advice{
		Application: "nginx", Since: "1.9.10",
		Settings: []string{
			fmt.Sprintf("worker_processes %d;", len(cpus)),
			fmt.Sprintf("worker_cpu_affinity %s;", masks(cpus)),
			fmt.Sprintf("listen %s reuseport;", listenAt(l)),
			fmt.Sprintf("niclane run --lane %s --listeners -- nginx", l.Name),
		},
		Why: []string{
			fmt.Sprintf("a worker on each of the lane's processors %s, with a listener of its own (reuseport)",
				device.FormatCPUList(cpus)),
			"--listeners leads each connection to the worker on the processor that serves its queue; without " +
				"it, the kernel's hash chooses among all workers",
		},
		Cautions: []string{
			"worker_cpu_affinity auto counts from processor 0, not from the lane's first processor",
			"without worker_cpu_affinity, give --pin: it pins each worker to a processor while nginx is in the lane",
		},
		Source: "https://nginx.org/en/docs/ngx_core_module.html#worker_cpu_affinity, " +
			"https://nginx.org/en/docs/http/ngx_http_core_module.html#listen",
	}
}

func haproxy(l Lane) Advice {
	cpus := l.CPUs()
	return Advice{
		Application: "haproxy", Since: "2.5",
		Settings: []string{
			fmt.Sprintf("nbthread %d", len(cpus)),
			fmt.Sprintf("cpu-map auto:1/1-%d %s", len(cpus), list(cpus, " ")),
			fmt.Sprintf("bind %s shards by-thread", listenAt(l)),
			fmt.Sprintf("niclane run --lane %s --listeners -- haproxy -f FILE", l.Name),
		},
		Why: []string{
			"a thread on each of the lane's processors, with a listener of its own (shards by-thread)",
			"--listeners leads each connection to the thread on the processor that serves its queue",
		},
		Cautions: []string{"HAProxy can hand a connection to a less loaded thread after accept " +
			"(tune.listener.multi-queue): off keeps it where it arrived"},
		Source: "https://docs.haproxy.org/2.6/configuration.html (nbthread, cpu-map, shards)",
	}
}

func varnish(l Lane) Advice {
	return Advice{
		Application: "varnish",
		Settings: []string{fmt.Sprintf("niclane run --lane %s -- varnishd -p thread_pools=%d ...", l.Name,
			len(l.CPUs()))},
		Why: []string{
			"one pool of threads for each of the lane's processors: more pools only cost memory, and in fewer pools " +
				"threads contend for a lock",
			"varnishd does not pin its threads: the lane's control group keeps them on the lane's processors",
		},
		Cautions: []string{"varnishd has one listening socket for each -a, and all pools accept from it: there is no " +
			"listener to choose, so a connection's thread can be on any of the lane's processors"},
		Source: "varnishd(1), thread_pools",
	}
}

func aerospike(l Lane) Advice {
	return Advice{
		Application: "aerospike", Since: "4.7",
		Settings: []string{"service {", "    auto-pin adq", "}", fmt.Sprintf("niclane run --lane %s -- asd", l.Name)},
		Why: []string{
			"service threads take connections by their NAPI ID, and are pinned to processors",
			"auto-pin adq needs one queue for each processor: " + match(l),
		},
		Cautions: append(byNAPI(l), "newer servers log that auto-pin-adq is deprecated; it implies NUMA pinning"),
		Source: "https://aerospike.com/blog/" +
			"announcing-aerospike-4-7-the-first-commercial-database-to-support-the-intel/",
	}
}

func spdk(l Lane) Advice {
	return Advice{
		Application: "spdk",
		Settings: []string{
			`{"method": "sock_impl_set_options", "params": {"impl_name": "posix", "enable_placement_id": 1}}`,
			fmt.Sprintf("niclane run --lane %s -- nvmf_tgt -m [%s]", l.Name, device.FormatCPUList(l.CPUs())),
		},
		Why: []string{
			"enable_placement_id: with 1, poll groups take connections by NAPI ID; with 2, by processor; with " +
				"3, by mark",
			"only one reactor for each queue gets connections: " + match(l),
		},
		Cautions: append(byNAPI(l), "set the option before the framework starts (--wait-for-rpc)"),
		Source:   "https://spdk.io/doc/jsonrpc.html (sock_impl_set_options), https://github.com/spdk/spdk/issues/2178",
	}
}

// match returns a text with the number of the lane's queues and processors. If they differ, the
// text says how to make them equal.
func match(l Lane) string {
	q, c := l.Queues(), len(l.CPUs())
	s := fmt.Sprintf("the lane has %s and %s", count(q, "queue"), count(c, "processor"))
	if q != c {
		s += fmt.Sprintf("; queues: %d in the lanes file would make them equal", c)
	}
	return s
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// listenAt returns ADDRESS:PORT of the lane's first TCP member that has ports. If that member has
// no single address, ADDRESS is "*". If there is no such member, PORT is the word "PORT".
func listenAt(l Lane) string {
	port, addr := "PORT", "*"
	for _, m := range l.Members {
		if m.Protocol == "tcp" && len(m.Ports) > 0 {
			port = fmt.Sprint(m.Ports[0])
			for _, a := range m.Addrs {
				if host, bits, _ := strings.Cut(a, "/"); bits == "32" {
					addr = host
					break
				}
			}
			break
		}
	}
	return addr + ":" + port
}

// masks returns the value of nginx's worker_cpu_affinity: one binary number for each worker.
func masks(cpus []int) string {
	var out []string
	width := 1
	if len(cpus) > 0 {
		width = slices.Max(cpus) + 1
	}
	for _, cpu := range cpus {
		out = append(out, strings.Repeat("0", width-cpu-1)+"1"+strings.Repeat("0", cpu))
	}
	return strings.Join(out, " ")
}

// WriteAdvice prints advice as text.
func WriteAdvice(w io.Writer, l Lane, as []Advice) {
	for _, f := range l.Fitted {
		fmt.Fprintf(w, "lane %s on %s: queues %s, processors %s\n", l.Name, f.Device, device.FormatCPUList(f.Queues),
			device.FormatCPUList(f.CPUs))
	}
	for _, a := range as {
		fmt.Fprintf(w, "\n%s", a.Application)
		if a.Since != "" {
			fmt.Fprintf(w, " (from version %s)", a.Since)
		}
		fmt.Fprintln(w)
		for _, s := range a.Settings {
			fmt.Fprintln(w, "    "+s)
		}
		for _, s := range a.Why {
			fmt.Fprintln(w, "  why     "+s)
		}
		for _, s := range a.Cautions {
			fmt.Fprintln(w, "  but     "+s)
		}
		fmt.Fprintln(w, "  source  "+a.Source)
	}
}
