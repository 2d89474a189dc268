// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"maps"
	"slices"

	y "github.com/niclane/niclane/internal/strictyaml"
)

// Gates, by name. A window passes a gate if the statement after the name is true.
const (
	GateHits       = "hits"       // the cache had the required share of hits
	GateTier       = "tier"       // the objects came from the required tier: memory or disk
	GateReclaim    = "reclaim"    // the kernel reclaimed no pages
	GateClient     = "client"     // the generators had spare processor time
	GateLate       = "late"       // the generators sent requests when they were due
	GateOrigin     = "origin"     // the origin had spare processor time
	GateTLS        = "tls"        // every connection was TLS
	GateProcessors = "processors" // no other process used the processors
	GateLink       = "link"       // the received data came over the link
)

// Gates are the names of all gates.
var Gates = []string{GateHits, GateTier, GateReclaim, GateClient, GateLate, GateOrigin, GateTLS, GateProcessors,
	GateLink}

// Tiers of a cache.
const (
	TierMemory = "memory"
	TierDisk   = "disk"
)

// Gating says which conditions every window must meet. A zero field sets no condition.
type Gating struct {
	// Hits is the share of requests, in permille, that the cache answers by itself; 0: not
	// checked.
	Hits int `json:"hitsPermille,omitempty"`
	// Tier is where the cache has the objects, one of the Tier constants; "": not checked.
	Tier string `json:"tier,omitempty"`
	// Warn are gates that only warn.
	Warn []string `json:"warn,omitempty"`
}

func gatesKeys() []y.Key[Gating] {
	return []y.Key[Gating]{
		y.Of("hits", y.Share(1, 1000), "not checked",
			"Share of requests that the cache must answer by itself, by its own counters (`server.cache`). The "+
				"tolerance is 0.1 percentage points plus the random variation of the drawn objects.",
			func(g *Gating, x int) { g.Hits = x }),
		y.Of("tier", y.Word(TierMemory, TierDisk), "not checked",
			"Where the cache has the objects. Disk: nearly all delivered bytes were read from the SUT's disks in "+
				"the window. Memory: next to none.",
			func(g *Gating, x string) { g.Tier = x }),
		y.Of("warn", y.OneOrList(y.Word(Gates...), len(Gates)), "none",
			"Gates that only warn instead of ending the run. A lab with few processors cannot pass all gates.",
			func(g *Gating, x []string) { g.Warn = x }),
	}
}

func gating() y.Kind[Gating] {
	return y.Nested("gates", "a mapping of keys: hits, tier, warn", gatesKeys, func() Gating { return Gating{} })
}

func (r *reader) checkGates() {
	g := r.e.Gates
	if g == nil || !r.fine("gates", "workload.protocol") {
		return
	}
	if !isHTTP(r.e.Workload.Protocol) {
		r.refuse("protocol: "+r.e.Workload.Protocol+", want protocol: http or https", "gates.hits", "gates.tier")
		return
	}
	if g.Hits > 0 && r.e.Server.Cache == nil {
		r.Failf("gates.hits", "found without server.cache, want server.cache, the place of the cache's counters")
	}
}

// Warns reports whether a gate only warns.
func (g *Gating) Warns(gate string) bool { return slices.Contains(g.Warn, gate) }

// Kinds of cache with known counters.
const (
	CacheVarnish       = "varnish"
	CacheTrafficServer = "trafficserver"
	CacheNginx         = "nginx"
)

// A Cache is the place of a cache's counters.
type Cache struct {
	Kind string `json:"kind"`
	// At says where the counters are, for Expand: the directory of Varnish, the log file of nginx, or
	// the HTTP path of Traffic Server's stats_over_http.
	At string `json:"at"`
	// Address of the cache, HOST:PORT, for Expand; "": the server's.
	Address string `json:"address,omitempty"`
}

func cacheKeys() []y.Key[Cache] {
	return []y.Key[Cache]{
		y.Of("kind", y.Word(CacheVarnish, CacheTrafficServer, CacheNginx), "required",
			"The cache: varnishstat's counters, those of Traffic Server's plugin stats_over_http, or nginx' log, "+
				"whose lines begin with `$$upstream_cache_status`.",
			func(c *Cache, x string) { c.Kind = x }),
		y.Of("at", argument(), "required",
			"The directory that varnishd has as `-n`, the path of the plugin (`/_stats`), or the log. `$scratch` "+
				"and similar names are replaced.",
			func(c *Cache, x string) { c.At = x }),
		y.Of("address", argument(), "the server's",
			"HOST:PORT of Traffic Server's plugin, if the server's port does not speak plain HTTP.",
			func(c *Cache, x string) { c.Address = x }),
	}
}

func cache() y.Kind[Cache] {
	return y.Nested("cache", "a mapping of keys: kind, at", cacheKeys, func() Cache { return Cache{} })
}

// A VariantServer is the changes that a variant makes to Server.
type VariantServer struct {
	Threads   int      `json:"threads,omitempty"`
	Arguments []string `json:"arguments,omitempty"`
	// Files replace files of Server that have the same path.
	Files map[string]string `json:"files,omitempty"`
	// KernelTLS says that the server leaves encryption to the kernel. The run verifies it.
	KernelTLS bool `json:"kernelTLS,omitempty"`
	// Limits are amounts by resource for the pod's first container. They are added to the limits in
	// its manifest.
	Limits map[string]string `json:"limits,omitempty"`
}

func variantServerKeys() []y.Key[VariantServer] {
	return []y.Key[VariantServer]{
		y.Of("threads", y.Integer(1, maxThreads), "`server.threads`",
			"Threads of the server.",
			func(s *VariantServer, x int) { s.Threads = x }),
		y.Of("arguments", command(), "none",
			"Arguments after those of the server: memcached's `[-N, $threads]`.",
			func(s *VariantServer, x []string) { s.Arguments = x }),
		y.Of("files", files(), "none",
			"Files that replace those of `server.files`.",
			func(s *VariantServer, x map[string]string) { s.Files = x }),
		y.Of("kernel-tls", y.Boolean(), "not checked",
			"On: the kernel must encrypt what the server sends (nginx: `ssl_conf_command Options KTLS`). The "+
				"server's files ask for it. The gate `tls` compares the server's connections with the kernel's "+
				"count (`/proc/net/tls_stat`).",
			func(s *VariantServer, x bool) { s.KernelTLS = x }),
		y.Of("limits", limits(), "the manifest's",
			"Limits of the first container of `kind: pod`, beyond those of the manifest: `{niclane.dev/redis: 1}` "+
				"is a pod with a lane.",
			func(s *VariantServer, x map[string]string) { s.Limits = x }),
	}
}

func variantServer() y.Kind[VariantServer] {
	return y.Nested("variant-server", "a mapping of keys: threads, arguments, files, kernel-tls, limits",
		variantServerKeys, func() VariantServer { return VariantServer{} })
}

// checkVariantServer refuses changes of the server and of tuning that this variant cannot have.
func (r *reader) checkVariantServer(path string, v *Variant) {
	r.checkTune(path+".tune", v)
	if v.Server == nil {
		return
	}
	kind := r.e.Server.Kind
	if kind == KindRunning {
		r.refuse("kind: running, which another program has started", path+".server")
	}
	if kind != KindCommand && kind != KindMemcached {
		r.refuse("kind: "+kind+", want kind: command or memcached", path+".server.arguments")
	}
	if v.Server.KernelTLS && r.e.Workload.Protocol != ProtocolHTTPS && r.fine("workload.protocol") {
		r.Failf(path+".server.kernel-tls", "found on with protocol: %s, want protocol: https", r.e.Workload.Protocol)
	}
	if v.Server.KernelTLS && r.e.Gates == nil && r.fine("gates") {
		r.Failf(path+".server.kernel-tls",
			"found on without gates, want gates, which compare the connections with the kernel's count")
	}
	for _, name := range slices.Sorted(maps.Keys(v.Server.Files)) {
		if _, ok := r.e.Server.Files[name]; !ok {
			r.Failf(y.Join(path+".server.files", name),
				"found a file that server.files does not have, want the path of one that it has")
		}
	}
	if fmt.Sprint(*v.Server) == fmt.Sprint(VariantServer{}) {
		r.Failf(path+".server", "found no keys, want threads, arguments, files or limits")
	}
}
