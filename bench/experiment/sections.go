// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	y "github.com/niclane/niclane/internal/strictyaml"
)

// A section is a mapping of the file, with its parts of the schema and of the reference.
type section struct {
	ref      string
	part     string // text of this section in the reference
	object   y.Schema
	wants    map[string]string // allowed values in words, by key
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

// sections returns the sections of a file, in the order of the reference. The first section is the
// top level.
func sections() []section {
	return []section{
		describe("experiment", "TOP LEVEL", "A file has these keys.", topKeys(), "version", "title", "server",
			"workload", "load", "variants"),
		describe("lab", "LAB", "`lab` is the lab of lab.md. The run raises it and takes it down. `{}` takes the "+
			"defaults. `niclane bench run --hosts`, see hosts.yaml(5), ignores this key.", labKeys()),
		describe("server", "SERVER", "`server` is the application on the system under test.", serverKeys(), "kind"),
		describe("process", "BESIDE", "Each item of `server.beside` has these keys.", processKeys(), "name"),
		describe("cache", "CACHE", "`server.cache` has these keys.", cacheKeys(), "kind", "at"),
		describe("ready", "READY", "`server.ready` has these keys.", readyKeys()),
		describe("workload", "WORKLOAD", "`workload` is what the generators ask for. With HTTP, the keys of "+
			"key-value stores are refused, and the other way round.", workloadKeys(), "protocol"),
		describe("object", "OBJECTS", "Each item of `workload.objects` has these keys.", objectKeys(), "path", "bytes"),
		describe("tls", "TLS", "`workload.tls` has these keys.", tlsKeys()),
		describe("load", "LOAD", "`load` is how the generators ask.", loadKeys()),
		describe("noise", "NOISE", "Each item of `noise` has these keys.", noiseKeys(), "direction", "rate"),
		describe("probe", "PROBES", "Each item of `probes` has these keys. A probe is a further server of niclane's "+
			"own on the SUT, in the lab only. In every window it is asked at the same time as the server, with the "+
			"same workload and as many connections.", probeKeys(), "name", "port"),
		describe("placement", "PLACEMENT", "`placement` has a place for each kind of process.", placementKeys()),
		describe("place", "A PLACE", "Each place has these keys.", placeKeys()),
		describe("variant", "VARIANTS", "Each item of `variants` has these keys. Variants differ in these keys "+
			"and in nothing else. Their repeats are interleaved, in rounds A B C, C B A and so on.",
			variantKeys(), "name"),
		describe("variant-server", "A VARIANT'S SERVER", "`variants[].server` has these keys.", variantServerKeys()),
		describe("tune", "TUNE", "`variants[].tune` has settings of the SUT. The run makes them before a window "+
			"of the variant and restores the old ones after it, in the end, and after a kill. Beside lanes, it can "+
			"have only what lanes do not set. On hosts, a setting that the host or its device lacks ends the run. "+
			"The lab changes only its own SUT; the result lists what it leaves out.", tuneKeys()),
		describe("repeats", "REPEATS", "`repeats` has these keys.", repeatsKeys()),
		describe("until", "UNTIL", "`repeats.until` has these keys.", untilKeys()),
		describe("sla", "SLA", "`sla`, or each item of it, has these keys. The report says up to which load each "+
			"variant meets each SLA. `search` looks for the highest rate of the first. With too few "+
			"requests for another one, the report says so.", slaKeys(), "percentile", "at"),
		describe("search", "SEARCH", "`search` has these keys.", searchKeys(), "max-rate"),
		describe("bounds", "MAX-RATE", "`search.max-rate` has these keys.", boundsKeys(), "from", "to"),
		describe("sweep", "SWEEP", "`sweep` measures one window for each variant, share and buffer, after the "+
			"repeats. It shows where a gain comes from. It is too short to claim one.",
			sweepKeys(), "variants", "noise"),
		describe("goal", "GOALS", "Each item of `goals` has these keys.", goalKeys(), "variant"),
		powerSection(), oidSection(),
		describe("gates", "GATES", "`gates` checks every window for conditions that make it worthless: page "+
			"reclaim on "+
			"the SUT, generators or an origin without spare time, https connections that are not TLS, processors "+
			"that other work used, and answers that did not come over the link. A failed gate ends the run with its "+
			"reason.",
			gatesKeys()),
		describe("sizes", "SIZES", "`sizes` has these keys.", sizesKeys()),
		describe("size", "A SIZE", "Each size has these keys. They replace other keys of the file.",
			sizeKeys()),
		describe("host-noise", "HOST NOISE", "`host-noise` has these keys.", hostNoiseKeys()),
	}
}

// powerSection and oidSection are sections of an experiment and of a hosts file.
func powerSection() section {
	return describe("power", "POWER", "`power`, or each item of it, has these keys. The run reads the SUT's power in "+
		"every window. On hosts with agents, the SUT's agent reads sensors in the SUT itself (rapl, hwmon, "+
		"ipmi by its device). A BMC or PDU measures the whole host, RAPL only processors and memory. "+
		"A hosts file with `power` replaces that of the experiment. "+
		"`go doc ./bench/power` has the bounds of a reading, and the windows that are too short for a sensor.",
		powerKeys(), "source")
}

func oidSection() section {
	return describe("oid", "OIDS", "Each item of `power.oids` has these keys.", oidKeys(), "oid", "unit")
}

// Schema returns the JSON Schema (draft 2020-12) of a file, for editors. It has each key in one
// spelling. It has the rules about a file's structure; rules between keys are checked by Parse
// only.
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

// Reference returns the part of experiment.yaml(5) that lists every key, in Markdown.
func Reference() string {
	text := ""
	for _, s := range sections() {
		text += s.part
	}
	return text
}
