// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"strings"
)

// Names that Expand replaces in commands, in files and in lanes texts. Each comment says what the
// value is.
const (
	NameAddress     = "address"     // address on which the server listens
	NamePort        = "port"        // port on which the server listens
	NameThreads     = "threads"     // server.threads
	NameQueues      = "queues"      // server.queues
	NamePollers     = "pollers"     // server.pollers
	NameConnections = "connections" // server.connections
	NameScratch     = "scratch"     // the run's directory on the host; contains server.files
	NameStorage     = "storage"     // directory for large files: that of the instance's NUMA node, else $scratch
	NameSUT         = "sut"         // address of the system under test (SUT)
	NameClient      = "client"      // address of the first client
	NameNoise       = "noise"       // address of the noise host
	NameDevice      = "device"      // device of the SUT, or of the client
	NameCgroup      = "cgroup"      // control group of the server's processes
	NameLink        = "link"        // rate of the link: 500mbit
	NameCPUs        = "cpus"        // processors of the server: [2-5, 8]
	NamePollCPUs    = "pollcpus"    // processors of the card's pollers: [0-3], or auto
	NameListen      = "listen"      // $address, or the address of all interfaces if the SUT has several
	NameNumber      = "n"           // number of this copy of an object
	NameNode        = "node"        // NUMA node of an instance of the server
	NameIndex       = "index"       // index of an instance, from 0
	NameInstances   = "instances"   // number of instances
)

var (
	commandNames = []string{NameAddress, NameListen, NamePort, NameThreads, NameQueues, NamePollers, NameConnections,
		NameScratch, NameStorage, NameSUT, NameClient, NameNoise, NameNode, NameIndex, NameInstances}
	laneNames = []string{NameDevice, NameCgroup, NameAddress, NamePort, NameThreads, NameQueues, NamePollers, NameLink,
		NameCPUs, NamePollCPUs}
	// Names in clients' lanes. A client has no control group and no processors of the server.
	clientLaneNames = []string{NameDevice, NameAddress, NamePort, NameQueues, NamePollers, NameLink}
	objectNames     = []string{NameNumber}
)

// Expand replaces $name by its value and $$ by $. For a name without a value it returns an error,
// which lists the names that have values.
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

// known lists the names that have values, in the order of the constants, for a message.
func known(values map[string]string) string {
	var out []string
	for _, name := range []string{NameAddress, NameListen, NamePort, NameThreads, NameQueues, NamePollers,
		NameConnections, NameScratch, NameStorage, NameSUT, NameClient, NameNoise, NameDevice, NameCgroup, NameLink,
		NameCPUs, NamePollCPUs, NameNumber, NameNode, NameIndex, NameInstances} {
		if _, ok := values[name]; ok {
			out = append(out, "$"+name)
		}
	}
	return strings.Join(out, " ")
}

// samples returns example values for the names. With them, a text can be checked before the run.
func samples(names []string) map[string]string {
	out := map[string]string{}
	for _, name := range names {
		out[name] = map[string]string{
			NameAddress: "192.0.2.1", NameListen: "192.0.2.1", NamePort: "11211", NameThreads: "1", NameQueues: "1",
			NamePollers: "1", NameConnections: "1", NameScratch: "/scratch", NameStorage: "/storage",
			NameSUT: "192.0.2.1", NameClient: "192.0.2.2", NameNoise: "192.0.2.3",
			NameDevice: "eth0", NameCgroup: "/cgroup", NameLink: "1gbit", NameCPUs: "auto", NamePollCPUs: "auto",
			NameNumber: "1", NameNode: "0", NameIndex: "0", NameInstances: "1",
		}[name]
	}
	return out
}
