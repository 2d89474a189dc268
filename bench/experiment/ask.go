// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"time"

	y "github.com/niclane/niclane/internal/strictyaml"
)

// serverPorts are the default ports of servers, by protocol.
var serverPorts = map[string]int{
	ProtocolMemcached: 11211, ProtocolHTTP: 80, ProtocolHTTPS: 443, ProtocolRESP: 6379, ProtocolAerospike: 3000,
}

func serverKeys() []y.Key[Server] {
	return []y.Key[Server]{
		y.Of("kind", y.Word(KindMemcached, KindNiclane, KindCommand, KindRunning, KindPod), "required",
			"The server: the distribution's memcached, niclane's own, any program by `command`, one that already "+
				"runs on hosts, or a pod of a Kubernetes cluster by `manifest`.",
			func(s *Server, x string) { s.Kind = x }),
		y.Of("fallback", y.Word(KindNiclane), "none",
			"If memcached is not installed, the run measures niclane's own server, and the result says so.",
			func(s *Server, x string) { s.Fallback = x }),
		y.Of("command", command(), "none",
			"Program and arguments of `kind: command`. No shell reads them. `$address`, `$port`, `$threads`, "+
				"`$queues`, `$pollers` and `$connections` stand for the keys of `server`. `$sut`, `$client` and "+
				"`$noise` stand for the hosts' addresses. `$listen` is the address on which to listen: `$address`, "+
				"or that of all interfaces if the SUT has several cards. `$scratch` is a directory that the run makes "+
				"on the host and removes again. `$storage` is the directory of the instance's NUMA node (`storage` of "+
				"hosts.yaml(5)), or `$scratch` without one. `$$` is a dollar sign.",
			func(s *Server, x []string) { s.Command = x }),
		y.Of("environment", environment(), "PATH only",
			"Environment of the command. The same names are replaced.",
			func(s *Server, x map[string]string) { s.Environment = x }),
		y.Of("files", files(), "none",
			"Files that commands need, by path below `$scratch`. The same names are replaced in their texts.",
			func(s *Server, x map[string]string) { s.Files = x }),
		y.Of("manifest", manifest(), "required with `kind: pod`",
			"The Pod, without a lane. `$port`, `$threads`, `$queues`, `$pollers`, `$connections`, `$sut`, `$client` "+
				"and `$noise` are replaced. The names of the pods that the run makes begin with its name. See PODS.",
			func(s *Server, x string) { s.Manifest = x }),
		y.Of("certificate", y.Boolean(), "off",
			"On: the run makes a certificate for the server's address, which is valid for the run. It puts "+
				"`certificate.pem`, `key.pem` and `bundle.pem` (both) into `$scratch`. Generators accept no other "+
				"certificate.",
			func(s *Server, x bool) { s.Certificate = x }),
		y.Of("beside", y.Sections("process", "a list of processes, each with name and command", 16, processKeys,
			func(y.Value) Process { return Process{Host: "sut"} }), "none",
			"Processes that the server needs, such as an origin. They start before the server, in this order.",
			func(s *Server, x []Process) { s.Beside = x }),
		y.Of("address", address(), "the SUT's, or the pod's own",
			"Address on which the server listens, or at which clients reach a pod.",
			func(s *Server, x string) { s.Address = x }),
		y.Of("port", port(), "that of the protocol: 11211, 80, 443, 6379, 3000",
			"Port on which the server listens.",
			func(s *Server, x int) { s.Port = x }),
		y.Of("threads", count(maxThreads, map[string]int{"cpus": perCPU}), "1",
			"Threads of the server. `cpus`: as many as the server has processors, by `cpus` of the hosts file or "+
				"`placement.server`. The hosts file's own number goes first.",
			func(s *Server, x int) { s.Threads = x }),
		y.Of("queues", count(maxQueues, map[string]int{"cpus": perCPU, "threads": perThread}), "threads",
			"Queues of the server's lane on each card: `$queues` in lanes, arguments and files. `cpus`: one for each "+
				"of the server's processors, over all cards. `threads`: one for each thread, over all cards.",
			func(s *Server, x int) { s.Queues = x }),
		y.Of("pollers", y.Integer(1, maxQueues), "`queues`",
			"Threads that poll these queues: `$pollers`.",
			func(s *Server, x int) { s.Pollers = x }),
		y.Of("memory", y.Size(1<<20, 1<<44), "64 MiB",
			"Memory for items, for memcached and niclane's own server.",
			func(s *Server, x int64) { s.Memory = x }),
		y.Of("connections", y.Integer(1, maxConnections), "what the load needs",
			"Connections that the server accepts at the same time.",
			func(s *Server, x int) { s.Connections = x }),
		y.Of("user", y.Pattern("USER:GROUP", `^[a-z_][a-z0-9_-]{0,31}:[a-z_][a-z0-9_-]{0,31}$`, nil), "nobody",
			"User of the run's processes in the lab. On hosts it is the user that the agent was started with. A "+
				"command without a path is looked up in the system's directories, /usr/local/sbin to /bin. The "+
				"user's group can write to `$scratch`.",
			func(s *Server, x string) { s.User = x }),
		y.Of("cache", cache(), "unknown",
			"Where a cache has its counters: see CACHE.",
			func(s *Server, x Cache) { s.Cache = &x }),
		splitKey(),
		y.Of("ready", ready(), "the workload's protocol answers in time",
			"Proof that the server answers, before the measurement.",
			func(s *Server, x Ready) { s.Ready = x }),
	}
}

func server() y.Kind[Server] {
	return y.Nested("server", "a mapping of keys: kind, port, ...", serverKeys, func() Server {
		return Server{Threads: 1, Ready: Ready{Timeout: int64(10 * time.Second)}}
	})
}

func processKeys() []y.Key[Process] {
	return []y.Key[Process]{
		y.Of("name", name(), "required",
			"Name of the process, for messages.",
			func(p *Process, x string) { p.Name = x }),
		y.Of("host", y.Word("sut", "client", "noise"), "sut",
			"Host of the process; `client` is the first client.",
			func(p *Process, x string) { p.Host = x }),
		y.Of("port", port(), "the run does not wait for it",
			"Port on which the process listens, at its host's address. The run waits for it before it starts "+
				"anything else.",
			func(p *Process, x int) { p.Port = x }),
		y.Of("command", command(), "this or `origin` is required",
			"Program and arguments, as in `server.command`.",
			func(p *Process, x []string) { p.Command = x }),
		y.Of("origin", y.Boolean(), "off",
			"On: niclane's own origin instead of a command. `/BYTES` and `/BYTES/ANYTHING` is an object of that "+
				"many bytes, cacheable for a year. `/BYTES/miss...` is an object that must not be cached.",
			func(p *Process, x bool) { p.Origin = x }),
	}
}

func readyKeys() []y.Key[Ready] {
	return []y.Key[Ready]{
		y.Of("protocol", y.Word(ProtocolMemcached, ProtocolHTTP, ProtocolHTTPS, ProtocolRESP, ProtocolAerospike,
			ProtocolTCP), "the workload's",
			"Protocol of the question. `tcp` only opens a connection.",
			func(r *Ready, x string) { r.Protocol = x }),
		y.Of("path", httpPath(nil), "that of the first object",
			"Path of an HTTP question. The answer must be 200.",
			func(r *Ready, x string) { r.Path = x }),
		y.Of("timeout", y.Duration(100*time.Millisecond, time.Hour), "10s; 2m for a pod",
			"Time after which the run fails without an answer.",
			func(r *Ready, x int64) { r.Timeout = x }),
	}
}

func ready() y.Kind[Ready] {
	return y.Nested("ready", "a mapping of keys: protocol, path, timeout", readyKeys, func() Ready {
		return Ready{Timeout: int64(10 * time.Second)}
	})
}

func workloadKeys() []y.Key[Workload] {
	return []y.Key[Workload]{
		y.Of("protocol", y.Word(ProtocolMemcached, ProtocolHTTP, ProtocolHTTPS, ProtocolRESP, ProtocolAerospike),
			"required",
			"memcached's text protocol, HTTP/1.1 without or with TLS, RESP (Redis), or Aerospike's protocol by "+
				"its Go client.",
			func(w *Workload, x string) { w.Protocol = x }),
		y.Of("keys", y.Integer(1, 100_000_000), "1000",
			"Number of keys.",
			func(w *Workload, x int) { w.Keys = x }),
		y.Of("key-bytes", y.Integer(8, 250), "16",
			"Length of a key.",
			func(w *Workload, x int) { w.KeyBytes = x }),
		y.Of("value-bytes", y.Size(1, 1<<20), "64",
			"Length of a value.",
			func(w *Workload, x int64) { w.ValueBytes = int(x) }),
		y.Of("get-set", ratio(), "1:0",
			"Ratio of gets to sets. The run proves it from the server's own counters.",
			func(w *Workload, x [2]int) { w.Gets, w.Sets = x[0], x[1] }),
		y.Of("distribution", y.Word("uniform"), "uniform",
			"Distribution of the keys.",
			func(w *Workload, x string) { w.Distribution = x }),
		y.Of("prefill", y.Boolean(), "on",
			"Whether the run sets every key, or fetches every object, before the measurement.",
			func(w *Workload, x bool) { w.Prefill = x }),
		y.Of("namespace", y.Pattern("1 to 31 letters, digits, _ and -", `^[A-Za-z0-9_-]{1,31}$`, nil), "test",
			"Aerospike's namespace.",
			func(w *Workload, x string) { w.Namespace = x }),
		y.Of("objects", y.Sections("object", "a list of objects, each with path and bytes", 64, objectKeys,
			func(y.Value) Object { return Object{Copies: 1, Weight: 1} }), "required with HTTP",
			"Objects that the generators ask for with HTTP.",
			func(w *Workload, x []Object) { w.Objects = x }),
		y.Of("host-header", serverName(), "the server's address and port",
			"Host header of the requests.",
			func(w *Workload, x string) { w.HostHeader = x }),
		y.Of("tls", tlsKind(), "version 1.3",
			"TLS settings of https.",
			func(w *Workload, x TLS) { w.TLS = &x }),
		y.Of("keep-alive", y.Boolean(), "on",
			"Whether an HTTP connection serves several requests. Off: each request opens one, and its handshake "+
				"counts.",
			func(w *Workload, x bool) { w.KeepAlive = x }),
		y.Of("least-hits", y.Share(1, 1000), "not checked; 100% with prefill",
			"Share of requests that must be hits by the server's own counters. Below it the run fails.",
			func(w *Workload, x int) { w.LeastHits = x }),
	}
}

func workload() y.Kind[Workload] {
	return y.Nested("workload", "a mapping of keys: protocol, ...", workloadKeys, func() Workload { return Workload{} })
}

func objectKeys() []y.Key[Object] {
	return []y.Key[Object]{
		y.Of("path", httpPath(objectNames), "required",
			"Path and query of the object. With `copies`, `$n` is the number of the copy.",
			func(o *Object, x string) { o.Path = x }),
		y.Of("copies", y.Integer(1, 10_000_000), "1",
			"Number of such objects. Each request draws one of them.",
			func(o *Object, x int) { o.Copies = x }),
		y.Of("bytes", y.Size(0, 1<<34), "required",
			"Length of the object. An answer of another length is an error.",
			func(o *Object, x int64) { o.Bytes = x }),
		y.Of("cacheable", y.Boolean(), "on",
			"Off: the origin forbids caching, so each request is a miss on purpose. `prefill` skips the object.",
			func(o *Object, x bool) { o.Uncached = !x }),
		y.Of("weight", y.Integer(1, 1000), "1",
			"Frequency of requests for the object, relative to the others.",
			func(o *Object, x int) { o.Weight = x }),
	}
}

func tlsKeys() []y.Key[TLS] {
	return []y.Key[TLS]{
		y.Of("version", tlsVersion(), "1.3",
			"The only TLS version that generators use.",
			func(t *TLS, x string) { t.Version = x }),
		y.Of("authority", y.Path("a PEM file of certificates"),
			"the run's own with `server.certificate`, else the certificate is not checked",
			"Authority of the server's certificate.",
			func(t *TLS, x string) { t.Authority = x }),
		y.Of("server-name", serverName(), "`host-header`, else the address",
			"Name that generators ask for. The certificate must have it.",
			func(t *TLS, x string) { t.ServerName = x }),
	}
}

func tlsKind() y.Kind[TLS] {
	return y.Nested("tls", "a mapping of keys: version, authority, server-name", tlsKeys, newTLS)
}

func newTLS() TLS { return TLS{Version: "1.3"} }

func loadKeys() []y.Key[Load] {
	return []y.Key[Load]{
		y.Of("mode", y.Word(Open, Closed), "open",
			"Open: requests leave at intended times, independent of the server, and latency counts from these. "+
				"Closed: each connection sends when it has its answer, so a slow server gets fewer requests.",
			func(l *Load, x string) { l.Mode = x }),
		y.Of("rates", y.Series("requests per second", 1, maxRate, maxPoints),
			"required with `open`, unless `search` is given",
			"Rates over all generators. Each is a load point.",
			func(l *Load, x []int) { l.Rates = x }),
		y.Of("arrivals", y.Word("constant", "poisson"), "poisson",
			"Intended times of `open`: at equal distances, as vegeta sends, or at random, like those of many "+
				"independent users.",
			func(l *Load, x string) { l.Arrivals = x }),
		y.Of("connections", y.Series("connections", 1, maxConnections, maxPoints),
			"`generators` with `open`; required with `closed`",
			"Connections over all generators. With `closed` each number is a load point. For Aerospike: commands "+
				"in flight.",
			func(l *Load, x []int) { l.Connections = x }),
		y.Of("connections-per-client", y.Series("connections", 1, maxConnections, maxPoints), "none",
			"`connections` of each client's host, instead of their sum. The lab has one client.",
			func(l *Load, x []int) { l.ConnectionsPerClient = x }),
		y.Of("expect", y.Integer(1, maxRate), "not known",
			"Requests per second that a closed loop is expected to reach, such as a paper's result. The dry run says "+
				"how many generators this takes.",
			func(l *Load, x int) { l.Expect = x }),
		y.Of("pipeline", y.Integer(1, 65536), "no limit with `open`, 1 with `closed`",
			"Requests that may be outstanding on a connection. For HTTP: 1.",
			func(l *Load, x int) { l.Pipeline = x }),
		y.Of("generators", y.Integer(1, maxGenerators), "1, or one on each client",
			"Generator processes. The run divides connections and rates among them and merges their histograms.",
			func(l *Load, x int) { l.Generators = x }),
		y.Of("spin", y.Duration(0, time.Millisecond), "0us",
			"Time before an intended time in which a generator polls instead of sleeping. For generators with "+
				"processors of their own.",
			func(l *Load, x int64) { l.Spin = x }),
		y.Of("warmup", y.Duration(0, time.Hour), "500ms",
			"Load before each window that does not count.",
			func(l *Load, x int64) { l.Warmup = x }),
		y.Of("window", y.Duration(time.Millisecond, 24*time.Hour), "2500ms",
			"Counted time of one repeat of one variant at one load point.",
			func(l *Load, x int64) { l.Window = x }),
		y.Of("timeout", y.Duration(time.Millisecond, time.Hour), "2s",
			"Limit from the intended time on. A later answer counts as timed out, with its true latency.",
			func(l *Load, x int64) { l.Timeout = x }),
		y.Of("connect-timeout", y.Duration(time.Millisecond, time.Hour), "5s",
			"Limit of opening one connection.",
			func(l *Load, x int64) { l.ConnectTimeout = x }),
		y.Of("connect-rate", y.Integer(1, maxRate), "no limit",
			"Connections opened per second, over all generators, as by rpc-perf's `--connect-ratelimit`. The "+
				"measurement begins when all are open.",
			func(l *Load, x int) { l.ConnectRate = x }),
		y.Of("tcp-nodelay", y.Boolean(), "on",
			"Off: the generators' kernel holds back a small request while an earlier one is not acknowledged "+
				"(Nagle's algorithm).",
			func(l *Load, x bool) { l.Nagle = !x }),
	}
}

func load() y.Kind[Load] {
	return y.Nested("load", "a mapping of keys: mode, rates, ...", loadKeys, func() Load {
		return Load{
			Mode:   Open,
			Warmup: int64(500 * time.Millisecond), Window: int64(2500 * time.Millisecond),
			Timeout: int64(2 * time.Second),
		}
	})
}
