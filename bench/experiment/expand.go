// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"strings"
)

// Names that Expand replaces in commands, in files and in the text of lanes, and their values.
const (
	NameAddress     = "address"     // address on which the server listens
	NamePort        = "port"        // port on which the server listens
	NameThreads     = "threads"     // server.threads
	NameConnections = "connections" // server.connections
	NameScratch     = "scratch"     // the run's directory on the host, with server.files
	NameStorage     = "storage"     // directory for large files: that of an instance's node, or $scratch
	NameSUT         = "sut"         // address of the SUT
	NameClient      = "client"      // address of the first client
	NameNoise       = "noise"       // address of the noise host
	NameDevice      = "device"      // device of the SUT, or of the client
	NameCgroup      = "cgroup"      // control group of the server's processes
	NameLink        = "link"        // rate of the link: 500mbit
	NameCPUs        = "cpus"        // processors of the server: [2-5, 8]
	NameNumber      = "n"           // number of a copy of an object
	NameNode        = "node"        // NUMA node of an instance of the server
	NameIndex       = "index"       // index of an instance, from 0
	NameInstances   = "instances"   // number of instances
)

var (
	commandNames = []string{NameAddress, NamePort, NameThreads, NameConnections, NameScratch, NameStorage, NameSUT,
		NameClient, NameNoise, NameNode, NameIndex, NameInstances}
	laneNames = []string{NameDevice, NameCgroup, NameAddress, NamePort, NameLink, NameCPUs}
	// Names in clients' lanes: the server's control group and processors do not exist there.
	clientLaneNames = []string{NameDevice, NameAddress, NamePort, NameLink}
	objectNames     = []string{NameNumber}
)

// Expand replaces $name by its value and $$ by $. A name without a value is an
// error that lists those that have one.
func Expand(text string, values map[string]string) (string, error) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		if strings.HasPrefix(rest, "$") {
			b.WriteByte('$')
			text = rest[1:]
			continue
		}
		name := rest[:len(rest)-len(strings.TrimLeft(rest, "abcdefghijklmnopqrstuvwxyz"))]
		value, ok := values[name]
		if !ok {
			return "", fmt.Errorf("found $%s, want %s, or $$ for a dollar sign", name, known(values))
		}
		b.WriteString(value)
		text = rest[len(name):]
	}
}

// known lists the names that have values, in the order of the constants.
func known(values map[string]string) string {
	var out []string
	for _, name := range []string{NameAddress, NamePort, NameThreads, NameConnections, NameScratch, NameStorage,
		NameSUT, NameClient, NameNoise, NameDevice, NameCgroup, NameLink, NameCPUs, NameNumber, NameNode, NameIndex,
		NameInstances} {
		if _, ok := values[name]; ok {
			out = append(out, "$"+name)
		}
	}
	return strings.Join(out, " ")
}

// samples returns example values for the names, to check a text.
func samples(names []string) map[string]string {
	out := map[string]string{}
	for _, name := range names {
		out[name] = map[string]string{
			NameAddress: "192.0.2.1", NamePort: "11211", NameThreads: "1", NameConnections: "1",
			NameScratch: "/scratch", NameStorage: "/storage",
			NameSUT: "192.0.2.1", NameClient: "192.0.2.2", NameNoise: "192.0.2.3",
			NameDevice: "eth0", NameCgroup: "/cgroup", NameLink: "1gbit", NameCPUs: "[0]", NameNumber: "1",
			NameNode: "0", NameIndex: "0", NameInstances: "1",
		}[name]
	}
	return out
}
