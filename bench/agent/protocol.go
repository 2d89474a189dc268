// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/niclane/niclane/bench/machine"
	"github.com/niclane/niclane/bench/part/ready"
)

// Protocol is the number of the language that agent and orchestrator speak. It
// grows with every change.
const Protocol = "5"

// Headers of requests and answers.
const (
	headerProtocol = "Niclane-Protocol"
	headerVersion  = "Niclane-Version"
	headerSession  = "Niclane-Session"
)

// Bounds of what either side takes.
const (
	// MaxRequest is how much JSON a request may be, a job's configuration with
	// it, bytes.
	MaxRequest = 1 << 20

	maxFile     = 1 << 20   // bytes of a file
	maxFiles    = 64 << 20  // bytes of a session's files
	maxResult   = 64 << 20  // bytes of a job's result, and of any answer
	maxResults  = 256 << 20 // bytes of the results of a session that nobody has fetched
	maxLog      = 16 << 10  // bytes that are kept of what a job says
	maxJobs     = 256       // of a session at once
	maxArgument = 64 << 10  // bytes of a command with its environment
	maxText     = 200       // bytes of names for messages
	maxConns    = 64        // connections of an agent
	// Connections that have not shown a certificate yet: the oldest is closed
	// for one more. More than can be made anew in the time of a handshake.
	maxStrangers = 1024
	maxStreams   = maxJobs*2 + 64
)

// Beat is how often both sides say that they are there.
const Beat = time.Second

// Lease is how long the other side may be silent. The default outlasts a card's reset
// and TCP's retransmissions after it: the link between the two may be the one that gets
// lanes.
const (
	DefaultLease = 30 * time.Second
	MinLease     = 2 * time.Second
	MaxLease     = 5 * time.Minute
)

// An Opening begins a session; it is the first line of its request.
type Opening struct {
	// Purpose is the experiment's title, which others are told who want a
	// session meanwhile.
	Purpose string `json:"purpose"`
	// Limit of the session, ns.
	Limit int64 `json:"limitNs"`
	// Device to describe, "" for none.
	Device string `json:"device,omitempty"`
	// Storage are directories of the host in each of which the session gets one
	// of its own, which ends with it.
	Storage []string `json:"storage,omitempty"`
}

func (o Opening) check(most time.Duration) error {
	var errs []error
	if err := checkText("purpose", o.Purpose); err != nil {
		errs = append(errs, err)
	}
	if o.Limit <= 0 || o.Limit > int64(most) {
		errs = append(errs, fmt.Errorf("a session of %v: want at most %v, what this agent was started with",
			time.Duration(o.Limit), most))
	}
	return errors.Join(append(errs, checkStorage(o.Storage))...)
}

// A Welcome is the first line of a session's answer.
type Welcome struct {
	Session string `json:"session"`
	Lease   int64  `json:"leaseNs"`
	Host    Host   `json:"host"`
	// Warnings are what the agent could not do for the session.
	Warnings []string `json:"warnings,omitempty"`
}

// Host is what an agent says of its host.
type Host struct {
	Hostname string `json:"hostname"`
	machine.Host
	// Root is whether the agent has root's rights: lanes need them.
	Root bool `json:"root"`
	// User that jobs run as.
	User string `json:"user"`
	// Processors that jobs may run on.
	Processors []int `json:"processors"`
	// Awake is whether the processors do not sleep deeply during the session.
	Awake bool `json:"awake"`
	// Scratch is the directory of the session's files.
	Scratch string `json:"scratch"`
	// Storage are its directories in those of the opening, in their order.
	Storage []string `json:"storage,omitempty"`
	// Cgroup is the control group that members run in, "" if there is none.
	Cgroup string `json:"cgroup,omitempty"`
	// Device that was asked for.
	Device *Device `json:"device,omitempty"`
}

// A Device of an agent's host.
type Device struct {
	Name  string `json:"name"`
	MTU   int    `json:"mtu"`
	Speed uint64 `json:"speedBitsPerSecond,omitempty"` // 0: it does not say
	// As ETHTOOL_GDRVINFO has it.
	Driver   string `json:"driver,omitempty"`
	Version  string `json:"version,omitempty"`
	Firmware string `json:"firmware,omitempty"`
	Bus      string `json:"bus,omitempty"`
	Queues   int    `json:"queues,omitempty"`
}

// A line of a session after the first, from the agent.
type line struct {
	// Ended is set in the last one: the host is restored, or why not.
	Ended *ending `json:"ended,omitempty"`
}

type ending struct {
	Reason string   `json:"reason"`
	Errors []string `json:"errors,omitempty"`
}

// Parts of niclane that a job can be, each a process "niclane internal-PART"
// that reads its configuration from standard input and writes its result to
// standard output.
var Parts = []string{"load", "noise", "server", "http", "counters", "hiccup", PartTune, "cache", "fetch", "nodes",
	PartLed}

// A Request starts a job: a part of niclane, or a command.
type Request struct {
	// What is for messages.
	What   string          `json:"what"`
	Part   string          `json:"part,omitempty"`
	Config json.RawMessage `json:"config,omitempty"`
	// Command is the program and its arguments, Environment NAME=VALUE.
	Command     []string `json:"command,omitempty"`
	Environment []string `json:"environment,omitempty"`
	// CPUs that the process may run on, none: all that the agent has, and its
	// SCHED_FIFO priority. A part's threads take SCHED_FIFO themselves.
	CPUs []int `json:"cpus,omitempty"`
	FIFO int   `json:"fifoPriority,omitempty"`
	// Mems are the NUMA nodes that its memory is from, none: as the kernel
	// chooses. With CPUs only.
	Mems []int `json:"mems,omitempty"`
	// MayFIFO is the priority that its threads may take themselves.
	MayFIFO int `json:"mayFIFOPriority,omitempty"`
	// Member of the session's control group.
	Member bool `json:"member,omitempty"`
	// Group is the name of a group below it, which keeps the job to CPUs and
	// Mems even where it places its threads itself; "": none.
	Group string `json:"group,omitempty"`
}

var groupBelow = regexp.MustCompile(`^[a-z][a-z0-9]{0,31}$`)

var environment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}=[^\x00]*$`)

func (r Request) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if err := checkText("what", r.What); err != nil {
		errs = append(errs, err)
	}
	switch {
	case (r.Part == "") == (len(r.Command) == 0):
		bad("want a part or a command, one of the two")
	case r.Part != "" && !slices.Contains(Parts, r.Part):
		bad("part %.40q: want one of %s", r.Part, strings.Join(Parts, " "))
	case r.Part != "" && len(r.Config) == 0:
		bad("part %s: no configuration", r.Part)
	case r.Part != "" && len(r.Environment) > 0:
		bad("part %s: a part has no environment", r.Part)
	}
	size := 0
	for _, a := range r.Command {
		size += len(a)
		if strings.ContainsRune(a, 0) {
			bad("command: an argument has a NUL")
		}
	}
	for _, e := range r.Environment {
		size += len(e)
		if !environment.MatchString(e) {
			bad("environment: %.60q: want NAME=VALUE", e)
		} else if name, _, _ := strings.Cut(e, "="); slices.Contains(reserved, name) || strings.HasPrefix(name, "LD_") {
			bad("environment: %s is not for an experiment to set", name)
		}
	}
	if size > maxArgument || len(r.Command)+len(r.Environment) > 1024 {
		bad("command: %d bytes in %d arguments, want at most %d in 1024", size, len(r.Command)+len(r.Environment),
			maxArgument)
	}
	for _, c := range r.CPUs {
		if c < 0 || c > 8191 {
			bad("processor %d: want 0 to 8191", c)
		}
	}
	for _, m := range r.Mems {
		if m < 0 || m > 1023 {
			bad("NUMA node %d: want 0 to 1023", m)
		}
	}
	if len(r.Mems) > 0 && len(r.CPUs) == 0 {
		bad("memory of NUMA nodes without processors: want both")
	}
	if r.Group != "" && (!groupBelow.MatchString(r.Group) || !r.Member || len(r.Mems) == 0) {
		bad("group %.40q: want a name of letters and digits, of a member with processors and memory", r.Group)
	}
	for _, p := range []int{r.FIFO, r.MayFIFO} {
		if p < 0 || p > 99 {
			bad("SCHED_FIFO priority %d: want 1 to 99, or 0", p)
		}
	}
	return errors.Join(errs...)
}

// reserved names are the agent's own.
var reserved = []string{marker, GroupVariable, "PATH"}

// A Started job.
type Started struct {
	ID int `json:"id"`
}

// An End of a job.
type End struct {
	// Error is how it ended, "" if well: "exit status 1: the last line".
	Error string `json:"error,omitempty"`
	// Result of a part that ended well.
	Result json.RawMessage `json:"result,omitempty"`
	// Log is the end of what it said.
	Log string `json:"log,omitempty"`
}

// An Asking is one question to a server.
type Asking struct {
	Address string `json:"address"`
	ready.Question
}

// A Search is for a program.
type Search struct {
	Program string `json:"program"`
	// Flag that it is asked with for its version, "" for not at all.
	Flag string `json:"flag,omitempty"`
}

// A Program that was found.
type Program struct {
	Path string `json:"path"`
	// Version is the first line of its answer, "" if there was none.
	Version string `json:"version,omitempty"`
}

// Lanes to apply.
type Lanes struct {
	Text string `json:"text"`
	// ConfirmWithin is when they are undone unless confirmed, ns.
	ConfirmWithin int64 `json:"confirmWithinNs"`
}

func (l Lanes) check() error {
	if d := time.Duration(l.ConfirmWithin); d < time.Second || d > time.Hour {
		return fmt.Errorf("confirmation within %v: want 1s to 1h", d)
	}
	return nil
}

// Applied is what was made of Lanes: what "niclane apply --json" says.
type Applied = json.RawMessage

// A Counting is what is counted between two readings.
type Counting struct {
	Device string `json:"device,omitempty"`
	// Jobs by name, whose processes are counted.
	Jobs map[string]int `json:"jobs,omitempty"`
}

// A Time is the agent's clock.
type Time struct {
	Mono int64 `json:"monoNs"` // CLOCK_MONOTONIC
}

// A failure is the body of an answer that is not 2xx.
type failure struct {
	Error string `json:"error"`
}

// checkName refuses paths of files that leave the session's directory.
func checkName(name string) error {
	if name == "" || len(name) > 500 || !fs.ValidPath(name) || name == "." ||
		strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == '\\' }) ||
		path.Clean(name) != name || strings.HasPrefix(path.Base(name), ".") {
		return fmt.Errorf("file %.60q: want a path below the session's directory, no part of it beginning with a dot",
			name)
	}
	for part := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(part, ".") {
			return fmt.Errorf("file %.60q: want a path below the session's directory, no part of it beginning with "+
				"a dot", name)
		}
	}
	return nil
}

// checkText takes what is printed on terminals and in logs.
func checkText(name, s string) error {
	if s == "" || len(s) > maxText || strings.ContainsFunc(s,
		func(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd }) {
		return fmt.Errorf("%s %.60q: want 1 to %d bytes of text in one line", name, s, maxText)
	}
	return nil
}
