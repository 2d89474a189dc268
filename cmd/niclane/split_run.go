// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	niclaneapp "github.com/niclane/niclane/app"
	"github.com/niclane/niclane/app/instances"
	"github.com/niclane/niclane/app/split"
	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/lane/device"
)

// The processes of an application on several nodes; ⇒ is execve(2). Each shard runs in its own
// lane:
//
//	niclane split
//	├─ internal-lane ⇒ COMMAND
//	└─ internal-lane ⇒ COMMAND
//
// Duplicates share a lane and its ports. A connection goes to the duplicate on the node where its
// packets arrive. For the lane, all duplicates are one application, and its first process starts
// them:
//
//	niclane split
//	└─ internal-lane ⇒ internal-instances
//	   ├─ internal-place ⇒ COMMAND
//	   └─ internal-place ⇒ COMMAND
const (
	laneArg      = "internal-lane"
	instancesArg = "internal-instances"
	placeArg     = "internal-place"
)

// A laneRun is the argument of internal-lane.
type laneRun struct {
	Parent           int // PID of the parent; when the parent ends, this process gets SIGTERM
	RunDir, StateDir string
	Lane, File       string
	CPUs, Mems       []int
	// If set, a connection to one of Ports goes to the instance on the node where it arrives. Nodes
	// has the processors of each instance's node.
	Nodes   [][]int
	Ports   []uint16
	Command []string
}

// An instanceRun is an instance that internal-instances runs.
type instanceRun struct {
	Name    string
	Place   place
	Command []string
	Env     []string
}

// A place is the argument of internal-place.
type place struct {
	Parent     int
	CPUs, Mems []int
}

// splitCommands returns the processes that niclane split starts, with their command lines.
func (a *app) splitCommands(s *split.Split, file string) ([]instances.Instance, error) {
	if s.Content == split.Shard {
		var out []instances.Instance
		for _, x := range s.Instances {
			argv, err := selfArgs(laneArg, laneRun{Parent: os.Getpid(), RunDir: a.RunDir, StateDir: a.StateDir,
				Lane: x.Lane, File: file,
				CPUs: x.CPUs, Mems: x.Mems, Command: x.Command})
			if err != nil {
				return nil, err
			}
			out = append(out, instances.Instance{Name: called(x), Argv: argv, Env: x.Env})
		}
		return out, nil
	}
	l, err := a.findLane(s.Lane, file)
	if err != nil {
		return nil, err
	}
	r := laneRun{Parent: os.Getpid(), RunDir: a.RunDir, StateDir: a.StateDir, Lane: s.Lane, File: file}
	var all []instanceRun
	for _, x := range s.Instances {
		r.CPUs, r.Mems = append(r.CPUs, x.CPUs...), append(r.Mems, x.Mems...)
		all = append(all, instanceRun{called(x), place{CPUs: x.CPUs, Mems: x.Mems}, x.Command, x.Env})
	}
	slices.Sort(r.CPUs)
	slices.Sort(r.Mems)
	r.Mems = slices.Compact(r.Mems)
	if len(s.Instances) > 1 {
		r.Ports = l.Ports("tcp")
		for _, x := range s.Instances {
			// The processors that serve a node's queues may not belong to the instance, so add them.
			node := append(slices.Clone(x.CPUs), x.Polling...)
			slices.Sort(node)
			r.Nodes = append(r.Nodes, slices.Compact(node))
		}
	}
	if r.Command, err = selfArgs(instancesArg, all); err != nil {
		return nil, err
	}
	argv, err := selfArgs(laneArg, r)
	return []instances.Instance{{Name: s.Lane, Argv: argv}}, err
}

func called(x split.Instance) string { return fmt.Sprintf("instance %d on node %d", x.Index, x.Node) }

// selfArgs returns the command line that starts the internal part arg of niclane. config is the
// part's argument, as JSON.
func selfArgs(arg string, config any) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(config)
	return []string{self, arg, string(b)}, err
}

func becomeInLane(args []string) error {
	var r laneRun
	if err := json.Unmarshal([]byte(args[0]), &r); err != nil {
		return err
	}
	runtime.LockOSThread() // execve keeps this thread's settings
	if err := instances.Follow(r.Parent); err != nil {
		return err
	}
	a := &app{cli.App{RunDir: r.RunDir, StateDir: r.StateDir}}
	l, err := a.findLane(r.Lane, r.File)
	if err != nil {
		return err
	}
	st, err := a.look(context.Background(), l.Devices())
	if err != nil {
		return err
	}
	o := niclaneapp.Options{RunDir: r.RunDir, State: st, CPUs: r.CPUs, Mems: r.Mems,
		Keeper: []string{"/proc/self/exe", niclaneapp.KeeperArg}}
	if len(r.Ports) > 0 {
		l.Nodes, o.Listeners = r.Nodes, &niclaneapp.Listeners{Ports: r.Ports}
	}
	return niclaneapp.Run(l, o, r.Command)
}

func runInstances(args []string) error {
	var all []instanceRun
	if err := json.Unmarshal([]byte(args[0]), &all); err != nil {
		return err
	}
	var out []instances.Instance
	for _, x := range all {
		x.Place.Parent = os.Getpid()
		argv, err := selfArgs(placeArg, x.Place)
		if err != nil {
			return err
		}
		out = append(out, instances.Instance{Name: x.Name, Argv: append(argv, x.Command...), Env: x.Env})
	}
	return instances.Run(context.Background(), out)
}

func becomeInPlace(args []string) error {
	var p place
	if err := json.Unmarshal([]byte(args[0]), &p); err != nil {
		return err
	}
	argv := args[1:]
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := instances.Follow(p.Parent); err != nil {
		return err
	}
	if err := niclaneapp.Place(p.CPUs, p.Mems); err != nil {
		return fmt.Errorf("processors %s, memory of node %s: %w", device.FormatCPUList(p.CPUs),
			device.FormatCPUList(p.Mems), err)
	}
	return fmt.Errorf("%s: %w", path, unix.Exec(path, argv, os.Environ()))
}
