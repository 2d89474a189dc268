// SPDX-License-Identifier: Apache-2.0

package experiment_test

import (
	"strings"
	"testing"

	"github.com/niclane/niclane/bench/experiment"
)

// TestParsePod checks that ParsePod refuses a Pod that cannot be measured, with a message of one
// line.
func TestParsePod(t *testing.T) {
	const head = "apiVersion: v1\nkind: Pod\n"
	for text, want := range map[string]string{
		head + "spec: {containers: [{name: a}]}":                  "",
		"---\n" + head + "spec: {containers: [{name: a}]}\n---\n": "",
		"":                               "found 0 objects, want one Pod",
		"- a":                            "found text that is not a mapping in YAML: ",
		"a: [":                           "found text that is not a mapping in YAML: ",
		head + "---\n" + head:            "found 2 objects, want one Pod",
		"apiVersion: v1\nkind: Service":  "found apiVersion: v1, kind: Service, want apiVersion: v1, kind: Pod",
		head + "spec: [1]":               "spec: found []interface {}, want a mapping",
		head + "metadata: 1\n":           "metadata: found uint64, want a mapping",
		head:                             "spec.containers is missing, want the server's container",
		head + "spec: {containers: []}":  "spec.containers is missing",
		head + "spec: {containers: [a]}": "spec.containers[0]: found a, want a mapping",
		head + "spec: {containers: [{}], restartPolicy: Always}": "spec.restartPolicy: found Always, want it left out",
	} {
		_, err := experiment.ParsePod(text)
		if (err == nil) != (want == "") || err != nil &&
			(!strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestSameServer checks that variants need different pods if they differ in the pod's settings or
// in the cluster's LanePolicy.
func TestSameServer(t *testing.T) {
	limits := func(n string) *experiment.VariantServer {
		return &experiment.VariantServer{Limits: map[string]string{"niclane.dev/redis": n}}
	}
	off := experiment.Variant{Name: "off"}
	for name, v := range map[string]experiment.Variant{
		"a policy": {LanePolicy: "p"}, "limits": {Server: limits("1")},
	} {
		if v.SameServer(&off) || off.SameServer(&v) {
			t.Errorf("%s: the server of off", name)
		}
		again := v
		if v.Server != nil {
			again.Server = limits("1")
		}
		again.Noise, again.Tune = true, &experiment.Tune{}
		if !v.SameServer(&again) {
			t.Errorf("%s: another server with noise", name)
		}
	}
}
