// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/niclane/niclane/k8s/api/params"
)

// IntelAnnotation is the annotation of Intel's plugin for ADQ: a list of containers with
// their ports.
const IntelAnnotation = "net.v1.intel.com/adq-config"

// intel reads Intel's annotation. It returns an error for values that Intel's plugin ignores:
// a port without a protocol, a number above 65535, an unknown container, or an entry without
// ports.
func intel(pod *corev1.Pod, text string) (map[string]params.Parameters, error) {
	var entries []struct {
		Name  string `json:"name"`
		Ports *struct {
			Local  []string `json:"local"`
			Remote []string `json:"remote"`
		} `json:"ports"`
	}
	if err := params.Strict([]byte(text), &entries); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", IntelAnnotation, err)
	}
	out := map[string]params.Parameters{}
	for i, e := range entries {
		at := fmt.Sprintf("annotation %s: [%d]", IntelAnnotation, i)
		_, twice := out[e.Name]
		switch {
		case container(pod, e.Name) == nil:
			return nil, fmt.Errorf("%s.name: the pod has no container %q (has: %s)", at, e.Name, names(pod))
		case twice:
			return nil, fmt.Errorf("%s.name: a second entry for container %q", at, e.Name)
		case e.Ports == nil:
			return nil, fmt.Errorf(`%s.ports is missing, want {"local": [...], "remote": [...]}`, at)
		}
		local, err := intelPorts(e.Ports.Local)
		if err != nil {
			return nil, fmt.Errorf("%s.ports.local%w", at, err)
		}
		remote, err := intelPorts(e.Ports.Remote)
		if err != nil {
			return nil, fmt.Errorf("%s.ports.remote%w", at, err)
		}
		if len(local)+len(remote) == 0 {
			local = []string{"all"}
		}
		out[e.Name] = params.Parameters{Ports: local, RemotePorts: remote}
	}
	return out, nil
}

// intelPorts checks ports of the forms PORT/PROTO, all/PROTO and all. Like Intel's plugin, it
// ignores case and white space around the words. For the single entry "all" it returns nil: any
// port.
func intelPorts(given []string) ([]string, error) {
	in := make([]string, len(given))
	for i, s := range given {
		port, protocol, slash := strings.Cut(s, "/")
		if in[i] = strings.ToLower(strings.TrimSpace(port)); slash {
			in[i] += "/" + strings.TrimSpace(protocol)
		}
	}
	for i, s := range in {
		if s != "all" && !strings.Contains(s, "/") {
			return nil, fmt.Errorf("[%d]: found %q, want PORT/TCP, PORT/UDP, all/TCP, all/UDP or all", i, given[i])
		}
		if _, err := params.ParsePorts(s); err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
	}
	if len(in) == 1 && in[0] == "all" {
		return nil, nil
	}
	return in, nil
}
