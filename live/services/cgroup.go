// SPDX-License-Identifier: Apache-2.0

package services

import (
	"regexp"
	"strings"
)

// hex is a container's ID as docker, podman, containerd and CRI-O make it.
var hex = regexp.MustCompile(`^[0-9a-f]{64}$`)

// containerOf returns the ID of the container to which a control group belongs, and its runtime.
// Both are "" if there is none. Runtimes name groups as package cgroup says (NamesContainer);
// systemd-nspawn names its unit or scope after the machine, LXC its group.
func containerOf(path string) (runtime, id string) {
	parts := strings.Split(path, "/")
	for i := len(parts) - 1; i >= 0; i-- {
		name := parts[i]
		if m, ok := strings.CutPrefix(name, "systemd-nspawn@"); ok && strings.HasSuffix(m, ".service") {
			return "nspawn", strings.TrimSuffix(m, ".service")
		}
		if m, ok := strings.CutPrefix(name, "lxc.payload."); ok {
			return "lxc", m
		}
		scope, isScope := strings.CutSuffix(name, ".scope")
		if m, ok := strings.CutPrefix(scope, "machine-"); ok && isScope {
			return "nspawn", strings.ReplaceAll(m, `\x2d`, "-")
		}
		if slice, rest, ok := strings.Cut(scope, ":"); ok { // SLICE:RUNTIME:ID
			if rt, id, ok := strings.Cut(rest, ":"); ok && hex.MatchString(id) && strings.HasSuffix(slice, ".slice") {
				return rt, id
			}
		}
		if at := strings.LastIndex(scope, "-"); at >= 0 {
			if rt, id := scope[:at], scope[at+1:]; hex.MatchString(id) && !strings.HasSuffix(rt, "conmon") {
				return rt, id
			}
		}
		if hex.MatchString(scope) {
			return parentRuntime(parts[:i]), scope
		}
	}
	return "", ""
}

// parentRuntime returns the runtime that the groups above a container's tell.
func parentRuntime(above []string) string {
	for _, name := range above {
		if name == "docker" {
			return "docker"
		}
	}
	return ""
}

// unitOf returns the systemd service of a control group, "" if there is none. A user's own manager
// (user@1000.service) is none: its services and scopes are below it.
func unitOf(path string) string {
	parts := strings.Split(path, "/")
	for i := len(parts) - 1; i >= 0; i-- {
		if strings.HasSuffix(parts[i], ".service") {
			if strings.HasPrefix(parts[i], "user@") {
				return ""
			}
			return parts[i]
		}
	}
	return ""
}
