// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	y "github.com/niclane/niclane/internal/strictyaml"
)

// A section is a mapping of the file, as the schema and the reference have it.
type section struct {
	ref      string
	part     string // of the reference
	object   y.Schema
	wants    map[string]string // what is allowed, by key
	required []string
}

func describe[T any](ref, title, text string, keys []y.Key[T], required ...string) section {
	wants := map[string]string{}
	for _, k := range keys {
		wants[k.Name] = k.Want
	}
	return section{
		ref: ref, part: y.Part(title, text, keys), object: y.Object(keys, text, required...),
		wants: wants, required: required,
	}
}

// sections of a file, in the order of the reference. The first is the file.
func sections() []section {
	return []section{
		describe("experiment", "TOP LEVEL", "A file has these keys.", topKeys(), "version", "title", "server",
			"workload", "load", "variants"),
		describe("lab", "LAB", "`lab` is the lab of lab.md, raised for the run and taken down after it. `{}` takes "+
			"its defaults. With `niclane bench run --hosts`, see hosts.yaml(5), it is ignored.", labKeys()),
		describe("server", "SERVER", "`server` is the system under test's application.", serverKeys(), "kind"),
		describe("process", "BESIDE", "Each item of `server.beside`.", processKeys(), "name"),
		describe("cache", "CACHE", "`server.cache`.", cacheKeys(), "kind", "at"),
		describe("ready", "READY", "`server.ready`.", readyKeys()),
		describe("workload", "WORKLOAD", "`workload` is what is asked for. Keys of key-value stores are refused "+
			"with HTTP, and the other way round.", workloadKeys(), "protocol"),
		describe("object", "OBJECTS", "Each item of `workload.objects`.", objectKeys(), "path", "bytes"),
		describe("tls", "TLS", "`workload.tls`.", tlsKeys()),
		describe("load", "LOAD", "`load` is how it is asked for.", loadKeys()),
		describe("noise", "NOISE", "Each item of `noise`.", noiseKeys(), "direction", "rate"),
		describe("placement", "PLACEMENT", "`placement` has places.", placementKeys()),
		describe("place", "A PLACE", "Each of them has these keys.", placeKeys()),
		describe("variant", "VARIANTS", "Each item of `variants`. Variants differ in what stands here and in "+
			"nothing else; their repeats are interleaved, in rounds A B C, C B A and so on.", variantKeys(), "name"),
		describe("variant-server", "A VARIANT'S SERVER", "`variants[].server`.", variantServerKeys()),
		describe("tune", "TUNE", "`variants[].tune`: set in the SUT's network namespace before a window of the "+
			"variant, and put back after it.", tuneKeys()),
		describe("repeats", "REPEATS", "`repeats`.", repeatsKeys()),
		describe("until", "UNTIL", "`repeats.until`.", untilKeys()),
		describe("sla", "SLA", "`sla`.", slaKeys(), "percentile", "at"),
		describe("search", "SEARCH", "`search`.", searchKeys(), "max-rate"),
		describe("bounds", "MAX-RATE", "`search.max-rate`.", boundsKeys(), "from", "to"),
		describe("sweep", "SWEEP", "`sweep`: one window for each variant, share and buffer, after the repeats. It "+
			"shows where a gain comes from; too short to claim one.", sweepKeys(), "variants", "noise"),
		describe("goal", "GOALS", "Each item of `goals`.", goalKeys(), "variant"),
		describe("power", "POWER", "`power`, or each item of it: what the SUT draws is read in every window. On "+
			"hosts with agents, sensors in the SUT itself (rapl, hwmon, ipmi by its device) are read by its agent. "+
			"A BMC's or PDU's is that of the whole host, RAPL's of processors and memory only; the bounds of a "+
			"reading, and which windows are too short for a sensor, are in `go doc ./bench/power`.", powerKeys(),
			"source"),
		describe("oid", "OIDS", "Each item of `power.oids`.", oidKeys(), "oid", "unit"),
		describe("gates", "GATES", "`gates`. With it every window is held to what would make it worthless: page "+
			"reclaim on the SUT, generators or an origin without a moment to spare, connections of https that are "+
			"not TLS, processors that others had, and answers that did not come over the link. A gate that is not "+
			"passed ends the run with that reason.", gatesKeys()),
		describe("sizes", "SIZES", "`sizes`.", sizesKeys()),
		describe("size", "A SIZE", "Each of them has these keys, which take the place of others of the file.",
			sizeKeys()),
		describe("host-noise", "HOST NOISE", "`host-noise`.", hostNoiseKeys()),
	}
}

// Schema returns the JSON Schema (draft 2020-12) of a file, for editors. It has
// each key in one spelling, and what follows from the shape of a file; what
// keys mean for each other only Parse can check.
func Schema() []byte {
	defs := y.Schema{}
	all := sections()
	for _, s := range all[1:] {
		defs[s.ref] = s.object
	}
	top := all[0].object
	top["$defs"] = defs
	return y.Encode(top, "niclane experiment")
}

// Reference returns the part of experiment.yaml(5) that lists every key, in
// Markdown.
func Reference() string {
	text := ""
	for _, s := range sections() {
		text += s.part
	}
	return text
}
