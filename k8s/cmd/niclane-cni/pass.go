// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/niclane/niclane/k8s/cniproto"
)

// passOn does all that ADD and DEL take of a pod that can have no lane, if the agent
// has written that down: what the plugins before have made is the result, in their
// words. Most pods are such; they wait for nobody's turn on a busy processor, and for
// no more of a program than that. It reports whether it did; if not, standard input is
// as it was.
func passOn() bool {
	command := os.Getenv("CNI_COMMAND")
	_, _, uid := podOf(os.Getenv("CNI_ARGS"))
	if command != "ADD" && command != "DEL" || uid == "" {
		return false
	}
	in, err := io.ReadAll(os.Stdin)
	if err == nil {
		if result, ok := passedOn(command, uid, in); ok {
			if _, err := os.Stdout.Write(result); err != nil {
				fmt.Fprintln(os.Stderr, "niclane-cni: the result could not be written:", err)
				os.Exit(1)
			}
			return true
		}
	}
	unread(in)
	return false
}

// passedOn is the result of a command. ok is false if the pod may have a lane, or
// somebody has to say what is wrong with the configuration in.
func passedOn(command, uid string, in []byte) (result []byte, ok bool) {
	c := struct {
		CNIVersion string          `json:"cniVersion"`
		Socket     string          `json:"socket"`
		PrevResult json.RawMessage `json:"prevResult"`
	}{Socket: cniproto.DefaultSocket}
	if json.Unmarshal(in, &c) != nil || !cniproto.HasNoLane(c.Socket, uid) {
		return nil, false
	}
	if command == "DEL" {
		return nil, true // there is nothing to take out
	}
	// A result in the words of another version is to be translated.
	var r struct {
		CNIVersion string `json:"cniVersion"`
	}
	if json.Unmarshal(c.PrevResult, &r) != nil || r.CNIVersion == "" || r.CNIVersion != c.CNIVersion {
		return nil, false
	}
	return c.PrevResult, true
}

// unread puts back what was read of standard input.
func unread(in []byte) {
	r, w, err := os.Pipe()
	if err != nil {
		return // who reads finds nothing, and says so
	}
	go func() {
		_, _ = w.Write(in) // who reads has ended: nobody is to read it
		_ = w.Close()
	}()
	os.Stdin = r
}
