// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"time"

	y "github.com/niclane/niclane/internal/strictyaml"
)

// Ports of servers, unless the file gives others.
var serverPorts = map[string]int{
	ProtocolMemcached: 11211, ProtocolHTTP: 80, ProtocolHTTPS: 443, ProtocolRESP: 6379, ProtocolAerospike: 3000,
}

func serverKeys() []y.Key[Server] {
	return []y.Key[Server]{
		y.Of("kind", y.Word(KindMemcached, KindNiclane, KindCommand, KindRunning, KindPod), "has to be given",
			"Which server: memcached as the distribution has it, niclane's own, any program by `command`, one that "+
				"is running already on hosts, or a pod of a Kubernetes cluster by `manifest`.",
			func(s *Server, x string) { s.Kind = x }),
		y.Of("fallback", y.Word(KindNiclane), "none",
			"Where memcached is not installed, niclane's own server is measured, and the result says so.",
			func(s *Server, x string) { s.Fallback = x }),
		y.Of("command", command(), "none",
			"Program and arguments of `kind: command`. No shell reads them. `$address`, `$port`, `$threads` and "+
				"`$connections` are replaced by the keys of `server`, `$sut`, `$client` and `$noise` by the "+
				"addresses of the hosts, `$scratch` by a directory that the run makes on the host and removes "+
				"again, `$storage` by that of an instance's NUMA node (`storage` of hosts.yaml(5)), or `$scratch` "+
				"where there is none; `$$` is a dollar sign.",
			func(s *Server, x []string) { s.Command = x }),
		y.Of("environment", environment(), "PATH only",
			"Environment of the command; the same names are replaced.",
			func(s *Server, x map[string]string) { s.Environment = x }),
		y.Of("files", files(), "none",
			"Files that commands need, by path below `$scratch`; the same names are replaced in their texts.",
			func(s *Server, x map[string]string) { s.Files = x }),
		y.Of("manifest", manifest(), "has to be given with `kind: pod`",
			"The Pod, without a lane. `$port`, `$threads`, `$connections`, `$sut`, `$client` and `$noise` are "+
				"replaced. Its name is the beginning of the names of the pods that are made from it; see PODS.",
			func(s *Server, x string) { s.Manifest = x }),
		y.Of("certificate", y.Boolean(), "off",
			"On: the run makes a certificate for the server's address, valid for its own duration, and puts "+
				"`certificate.pem`, `key.pem` and, with both, `bundle.pem` into `$scratch`. Generators take no other.",
			func(s *Server, x bool) { s.Certificate = x }),
		y.Of("beside", y.Sections("process", "a list of processes, each with name and command", 16, processKeys,
			func(y.Value) Process { return Process{Host: "sut"} }), "none",
			"Processes that the server needs, an origin for instance, started before it in this order.",
			func(s *Server, x []Process) { s.Beside = x }),
		y.Of("address", address(), "the SUT's, or the pod's own",
			"Address that the server listens on, or that clients have for a pod.",
			func(s *Server, x string) { s.Address = x }),
		y.Of("port", port(), "that of the protocol: 11211, 80, 443, 6379, 3000",
			"Port that the server listens on.",
			func(s *Server, x int) { s.Port = x }),
		y.Of("threads", y.Integer(1, 1024), "1",
			"Threads that serve.",
			func(s *Server, x int) { s.Threads = x }),
		y.Of("memory", y.Size(1<<20, 1<<44), "64 MiB",
			"Memory for items, of memcached and niclane's own server.",
			func(s *Server, x int64) { s.Memory = x }),
		y.Of("connections", y.Integer(1, maxConnections), "what the load needs",
			"Connections that the server takes at once.",
			func(s *Server, x int) { s.Connections = x }),
		y.Of("user", y.Pattern("USER:GROUP", `^[a-z_][a-z0-9_-]{0,31}:[a-z_][a-z0-9_-]{0,31}$`, nil), "nobody",
			"User that the processes of a run have in the lab. On hosts that is what the agent was started with. "+
				"A command is looked for in the system's directories, /usr/local/sbin to /bin; elsewhere, name its "+
				"path. Its `$scratch` is writable for that user's group.",
			func(s *Server, x string) { s.User = x }),
		y.Of("cache", cache(), "not known",
			"Where a cache counts what it has: see CACHE.",
			func(s *Server, x Cache) { s.Cache = &x }),
		splitKey(),
		y.Of("ready", ready(), "the workload's protocol answers in time",
			"How the server is proven to answer before anything is measured.",
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
		y.Of("name", name(), "has to be given",
			"Name of the process, for messages.",
			func(p *Process, x string) { p.Name = x }),
		y.Of("host", y.Word("sut", "client", "noise"), "sut",
			"Host that it runs on; `client` is the first of them.",
			func(p *Process, x string) { p.Host = x }),
		y.Of("port", port(), "it is not waited for",
			"Port on which it listens, at the address of its host, before anything else is started.",
			func(p *Process, x int) { p.Port = x }),
		y.Of("command", command(), "this or `origin` has to be given",
			"Program and arguments, as `server.command`.",
			func(p *Process, x []string) { p.Command = x }),
		y.Of("origin", y.Boolean(), "off",
			"On: niclane's own origin, in the place of a command: `/BYTES` and `/BYTES/ANYTHING` is an object of so "+
				"many bytes, cacheable for a year; `/BYTES/miss...` is one that must not be cached.",
			func(p *Process, x bool) { p.Origin = x }),
	}
}

func readyKeys() []y.Key[Ready] {
	return []y.Key[Ready]{
		y.Of("protocol", y.Word(ProtocolMemcached, ProtocolHTTP, ProtocolHTTPS, ProtocolRESP, ProtocolAerospike,
			ProtocolTCP), "the workload's",
			"Protocol of the question; `tcp` opens a connection only.",
			func(r *Ready, x string) { r.Protocol = x }),
		y.Of("path", httpPath(nil), "that of the first object",
			"What is asked for with HTTP; the answer has to be 200.",
			func(r *Ready, x string) { r.Path = x }),
		y.Of("timeout", y.Duration(100*time.Millisecond, time.Hour), "10s, of a pod 2m",
			"When the run fails for want of an answer.",
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
			"has to be given",
			"memcached's text protocol, HTTP/1.1 plain or under TLS, RESP (Redis), or Aerospike's by its Go client.",
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
			"Ratio of gets to sets, proven from the server's own counters.",
			func(w *Workload, x [2]int) { w.Gets, w.Sets = x[0], x[1] }),
		y.Of("distribution", y.Word("uniform"), "uniform",
			"How keys are drawn.",
			func(w *Workload, x string) { w.Distribution = x }),
		y.Of("prefill", y.Boolean(), "on",
			"Whether every key is set, or every object fetched, before anything is measured.",
			func(w *Workload, x bool) { w.Prefill = x }),
		y.Of("namespace", y.Pattern("1 to 31 letters, digits, _ and -", `^[A-Za-z0-9_-]{1,31}$`, nil), "test",
			"Namespace of Aerospike.",
			func(w *Workload, x string) { w.Namespace = x }),
		y.Of("objects", y.Sections("object", "a list of objects, each with path and bytes", 64, objectKeys,
			func(y.Value) Object { return Object{Copies: 1, Weight: 1} }), "has to be given with HTTP",
			"What is asked for with HTTP.",
			func(w *Workload, x []Object) { w.Objects = x }),
		y.Of("host-header", serverName(), "the server's address and port",
			"Host header of the requests.",
			func(w *Workload, x string) { w.HostHeader = x }),
		y.Of("tls", tlsKind(), "version 1.3",
			"TLS of https.",
			func(w *Workload, x TLS) { w.TLS = &x }),
		y.Of("keep-alive", y.Boolean(), "on",
			"Whether connections of HTTP outlive a request. Off: each request opens one, whose handshakes count.",
			func(w *Workload, x bool) { w.KeepAlive = x }),
		y.Of("least-hits", y.Share(1, 1000), "not looked at; 100% with prefill",
			"Share of requests that the server must have had, by its own counters; below it the run fails.",
			func(w *Workload, x int) { w.LeastHits = x }),
	}
}

func workload() y.Kind[Workload] {
	return y.Nested("workload", "a mapping of keys: protocol, ...", workloadKeys, func() Workload { return Workload{} })
}

func objectKeys() []y.Key[Object] {
	return []y.Key[Object]{
		y.Of("path", httpPath(objectNames), "has to be given",
			"Path and query of the object. With `copies`, `$n` is the number of the copy.",
			func(o *Object, x string) { o.Path = x }),
		y.Of("copies", y.Integer(1, 10_000_000), "1",
			"Number of such objects, from which each request draws one.",
			func(o *Object, x int) { o.Copies = x }),
		y.Of("bytes", y.Size(0, 1<<34), "has to be given",
			"Length of the object; an answer of another length is an error.",
			func(o *Object, x int64) { o.Bytes = x }),
		y.Of("cacheable", y.Boolean(), "on",
			"Off: the origin lets nobody keep it, so that each request for it is a miss on purpose. `prefill` "+
				"leaves it out.",
			func(o *Object, x bool) { o.Uncached = !x }),
		y.Of("weight", y.Integer(1, 1000), "1",
			"How often it is asked for, relative to the others.",
			func(o *Object, x int) { o.Weight = x }),
	}
}

func tlsKeys() []y.Key[TLS] {
	return []y.Key[TLS]{
		y.Of("version", tlsVersion(), "1.3",
			"The version, exactly.",
			func(t *TLS, x string) { t.Version = x }),
		y.Of("authority", y.Path("a PEM file of certificates"),
			"the run's own with `server.certificate`, else the certificate is not looked at",
			"Who vouches for the server's certificate.",
			func(t *TLS, x string) { t.Authority = x }),
		y.Of("server-name", serverName(), "`host-header`, else the address",
			"Name that is asked for, and that the certificate has to have.",
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
			"Open: requests at intended times, from which latency counts, whatever the server does. Closed: each "+
				"connection sends when it has its answer, so that a slow server is asked less.",
			func(l *Load, x string) { l.Mode = x }),
		y.Of("rates", y.Series("requests per second", 1, maxRate, maxPoints),
			"has to be given with `open`, unless `search` is",
			"Rates over all generators; each is a load point.",
			func(l *Load, x []int) { l.Rates = x }),
		y.Of("arrivals", y.Word("constant", "poisson"), "poisson",
			"Intended times of `open`: at equal distances, or as of many independent users.",
			func(l *Load, x string) { l.Arrivals = x }),
		y.Of("connections", y.Series("connections", 1, maxConnections, maxPoints),
			"`generators` with `open`; has to be given with `closed`",
			"Connections over all generators. With `closed` each number is a load point. Of Aerospike: commands in "+
				"flight.",
			func(l *Load, x []int) { l.Connections = x }),
		y.Of("pipeline", y.Integer(1, 65536), "no limit with `open`, 1 with `closed`",
			"Requests that may be outstanding on a connection. Of HTTP: 1.",
			func(l *Load, x int) { l.Pipeline = x }),
		y.Of("generators", y.Integer(1, maxGenerators), "1, or one on each client",
			"Processes that generate, to which connections and rates are dealt out. Their histograms are merged.",
			func(l *Load, x int) { l.Generators = x }),
		y.Of("spin", y.Duration(0, time.Millisecond), "0us",
			"How long before an intended time a generator polls instead of sleeping; for processors of its own.",
			func(l *Load, x int64) { l.Spin = x }),
		y.Of("warmup", y.Duration(0, time.Hour), "500ms",
			"Load before each window, which is not counted.",
			func(l *Load, x int64) { l.Warmup = x }),
		y.Of("window", y.Duration(100*time.Millisecond, 24*time.Hour), "2500ms",
			"Counted time of one repeat of one variant at one load point.",
			func(l *Load, x int64) { l.Window = x }),
		y.Of("timeout", y.Duration(time.Millisecond, time.Hour), "2s",
			"From the intended time on; a later answer counts as timed out, with its true latency.",
			func(l *Load, x int64) { l.Timeout = x }),
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
