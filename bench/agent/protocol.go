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

// Protocol is the version of the protocol between agent and orchestrator. Each change of the
// protocol increases it.
const Protocol = "6"

// Headers of requests and answers.
const (
	headerProtocol = "Niclane-Protocol"
	headerVersion  = "Niclane-Version"
	headerSession  = "Niclane-Session"
)

// Limits of what either side accepts.
const (
	// MaxRequest is the largest body of a request, in bytes.
	MaxRequest = 1 << 20

	maxFile     = 1 << 20   // bytes of a file
	maxFiles    = 64 << 20  // bytes of a session's files
	maxResult   = 64 << 20  // bytes of a job's result
	maxResults  = 256 << 20 // bytes of all results of a session that the client has not fetched
	maxLog      = 16 << 10  // last bytes of a job's output that are kept
	maxJobs     = 256       // jobs of a session at the same time
	maxArgument = 64 << 10  // bytes of a command with its environment
	maxCards    = 31        // further devices of a session
	maxText     = 200       // bytes of a text from the client that messages contain
	maxConns    = 64        // connections of an agent
	// maxStrangers is the largest number of connections without a verified certificate. One more
	// closes the oldest of them. To open so many takes longer than a handshake, so a client that
	// shows its certificate at once keeps its connection.
	maxStrangers = 1024
	maxStreams   = maxJobs*2 + 64
)

// Beat is the interval of the heartbeats of both sides.
const Beat = time.Second

// Limits and default of the lease, which is how long the other side may be silent. The session may
// use the link that gets lanes. The default is therefore longer than a reset of the card and TCP's
// retransmissions after it.
const (
	DefaultLease = 30 * time.Second
	MinLease     = 2 * time.Second
	MaxLease     = 5 * time.Minute
)

// An Opening is the first line that the orchestrator sends in a session.
type Opening struct {
	// Purpose is the experiment's title. The agent tells it to other clients that want a session.
	Purpose string `json:"purpose"`
	// Limit is the longest time that the session may last, ns.
	Limit int64 `json:"limitNs"`
	// Device is the network device to describe in Host.Device; "": none.
	Device string `json:"device,omitempty"`
	// Cards are further devices, to describe in Host.Cards. Each may get lanes of its own: see
	// Lanes.Card.
	Cards []string `json:"cards,omitempty"`
	// Storage are directories of the host. In each of them, the agent makes a directory for the
	// session and removes it at the session's end.
	Storage []string `json:"storage,omitempty"`
}

func (o Opening) check(most time.Duration) error {
	var errs []error
	if err := checkText("purpose", o.Purpose); err != nil {
		errs = append(errs, err)
	}
	if len(o.Cards) > maxCards {
		errs = append(errs, fmt.Errorf("%d further devices: want at most %d", len(o.Cards), maxCards))
	}
	if o.Limit <= 0 || o.Limit > int64(most) {
		errs = append(errs, fmt.Errorf("a session of %v: want at most %v, the limit of this agent",
			time.Duration(o.Limit), most))
	}
	return errors.Join(append(errs, checkStorage(o.Storage))...)
}

// A Welcome is the first line that the agent sends in a session.
type Welcome struct {
	Session string `json:"session"`
	Lease   int64  `json:"leaseNs"`
	Host    Host   `json:"host"`
	// Warnings are what the agent could not do for the session.
	Warnings []string `json:"warnings,omitempty"`
}

// Host is the agent's description of its host.
type Host struct {
	Hostname string `json:"hostname"`
	machine.Host
	// Root says whether the agent runs as root, which lanes need.
	Root bool `json:"root"`
	// Lanes and Tune are the values of --lanes and --allow-tune.
	Lanes []string `json:"lanes,omitempty"`
	Tune  []string `json:"tune,omitempty"`
	// User is the user of the jobs.
	User string `json:"user"`
	// Processors are the numbers of the processors on which jobs may run.
	Processors []int `json:"processors"`
	// Awake says that deep sleep states of the processors are disabled during the session.
	Awake bool `json:"awake"`
	// Scratch is the directory of the session's files.
	Scratch string `json:"scratch"`
	// Storage are the directories that the agent made in those of Opening.Storage, in that order.
	Storage []string `json:"storage,omitempty"`
	// Cgroup is the path of the session's control group for members of a lane; "": none.
	Cgroup string `json:"cgroup,omitempty"`
	// Device describes Opening.Device; nil: not asked for, or not found.
	Device *Device `json:"device,omitempty"`
	// Cards describes those of Opening.Cards that were found.
	Cards []Device `json:"cards,omitempty"`
}

// A Device is a network device of an agent's host.
type Device struct {
	Name  string `json:"name"`
	MTU   int    `json:"mtu"`
	Speed uint64 `json:"speedBitsPerSecond,omitempty"` // 0: not reported
	// From ETHTOOL_GDRVINFO.
	Driver   string `json:"driver,omitempty"`
	Version  string `json:"version,omitempty"`
	Firmware string `json:"firmware,omitempty"`
	Bus      string `json:"bus,omitempty"`
	Queues   int    `json:"queues,omitempty"`
}

// A line is what the agent sends in a session after Welcome: a heartbeat, or the end.
type line struct {
	// Ended is set in the last line only: why the session ended, and what was not restored.
	Ended *ending `json:"ended,omitempty"`
}

type ending struct {
	Reason string   `json:"reason"`
	Errors []string `json:"errors,omitempty"`
}

// Parts are the parts of niclane that a job can be. Each is a process "niclane-bench internal-PART"
// that reads its configuration from standard input and writes its result to standard output.
var Parts = []string{"load", "noise", "server", "http", "counters", "hiccup", PartTune, "cache", "fetch", "nodes",
	PartLed}

// A Request starts a job: a part of niclane, or a command.
type Request struct {
	// What is the job's name in messages.
	What   string          `json:"what"`
	Part   string          `json:"part,omitempty"`
	Config json.RawMessage `json:"config,omitempty"`
	// Command is the program and its arguments. Environment are its variables, NAME=VALUE.
	Command     []string `json:"command,omitempty"`
	Environment []string `json:"environment,omitempty"`
	// CPUs are the processors on which the job may run; none: all that the agent has. FIFO is the
	// job's SCHED_FIFO priority; 0: none. The threads of a part set it themselves: see MayFIFO.
	CPUs []int `json:"cpus,omitempty"`
	FIFO int   `json:"fifoPriority,omitempty"`
	// Mems are the NUMA nodes of the job's memory; none: the kernel chooses. They need CPUs too.
	Mems []int `json:"mems,omitempty"`
	// MayFIFO is the highest SCHED_FIFO priority that the job's threads may set; 0: none.
	MayFIFO int `json:"mayFIFOPriority,omitempty"`
	// Member says that the job joins the session's control group.
	Member bool `json:"member,omitempty"`
	// Group is the name of a subgroup for the job; "": none. The subgroup limits the job to CPUs
	// and Mems, even if the job itself sets the processors of its threads.
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
		bad("want either a part or a command")
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
			bad("environment: an experiment cannot set %s", name)
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

// reserved are the environment variables that the agent sets itself.
var reserved = []string{marker, GroupVariable, TuneVariable, "PATH"}

// A Started is the number of a job, a counting or a meter that was started.
type Started struct {
	ID int `json:"id"`
}

// An End is how a job ended.
type End struct {
	// Error says how the job failed: "exit status 1: LAST LINE OF THE LOG". "": it did not fail.
	Error string `json:"error,omitempty"`
	// Result is the standard output of a part of niclane, if the part did not fail.
	Result json.RawMessage `json:"result,omitempty"`
	// Log is the end of the job's output.
	Log string `json:"log,omitempty"`
}

// An Asking is one question to a server.
type Asking struct {
	Address string `json:"address"`
	ready.Question
}

// A Search is a request to find a program.
type Search struct {
	Program string `json:"program"`
	// Flag is the argument that makes the program print its version; "": do not run it.
	Flag string `json:"flag,omitempty"`
}

// A Program is the answer to a Search.
type Program struct {
	Path string `json:"path"`
	// Version is the first line that the program printed for Flag; "": none.
	Version string `json:"version,omitempty"`
}

// Lanes is a lanes file to apply.
type Lanes struct {
	Text string `json:"text"`
	// Card is the number of the file, from 0 to the number of Opening.Cards, if each device has a file
	// of its own. File 0 goes first: the agent undoes all files before it applies that one.
	Card int `json:"card,omitempty"`
	// ConfirmWithin is the time in ns after which the lanes are undone if they are not confirmed.
	ConfirmWithin int64 `json:"confirmWithinNs"`
}

func (l Lanes) check() error {
	if d := time.Duration(l.ConfirmWithin); d < time.Second || d > time.Hour {
		return fmt.Errorf("confirmation within %v: want 1s to 1h", d)
	}
	return nil
}

// Applied is the result of applying Lanes: the output of "niclane apply --json".
type Applied = json.RawMessage

// A Counting says which counters of the host to read, at the start and at the end.
type Counting struct {
	Device string `json:"device,omitempty"`
	// Cards are further devices.
	Cards []string `json:"cards,omitempty"`
	// Jobs are the numbers of the jobs whose processes are counted, by their names in the result.
	Jobs map[string]int `json:"jobs,omitempty"`
}

// A Time is a reading of the agent's clock.
type Time struct {
	Mono int64 `json:"monoNs"` // CLOCK_MONOTONIC
}

// A failure is the body of an answer whose status is not 2xx.
type failure struct {
	Error string `json:"error"`
}

// checkName refuses paths that leave the session's directory.
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

// checkText refuses text that is not safe for terminals and logs.
func checkText(name, s string) error {
	if s == "" || len(s) > maxText || strings.ContainsFunc(s,
		func(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd }) {
		return fmt.Errorf("%s %.60q: want 1 to %d bytes of text in one line", name, s, maxText)
	}
	return nil
}
