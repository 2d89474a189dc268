// SPDX-License-Identifier: Apache-2.0

// Package pass does what ADD and DEL take of a pod that can have no lane, if
// niclane-agent has written that down: what the plugins before have made is the
// result, in their words. Most pods are such; they wait for nobody's turn on a busy
// processor, and for no more of a program than that.
package pass

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/niclane/niclane/k8s/cniproto"
)

// On does it for the command that the environment has, and reports whether it did; if
// not, os.Stdin is as it was. Where the program begins at start, it has been done
// before (early.go) for all but those that take encoding/json to understand.
func On() bool {
	command := os.Getenv("CNI_COMMAND")
	_, _, uid := cniproto.PodOf(os.Getenv("CNI_ARGS"))
	if command != "ADD" && command != "DEL" || uid == "" {
		return false
	}
	in, err := io.ReadAll(io.MultiReader(bytes.NewReader(taken()), os.Stdin))
	if err == nil {
		if out, ok := result(command, uid, in); ok {
			if _, err := os.Stdout.Write(out); err != nil {
				fmt.Fprintln(os.Stderr, "niclane-cni: the result could not be written:", err)
				os.Exit(1)
			}
			return true
		}
	}
	unread(in)
	return false
}

// result is the result of a command. ok is false if the pod may have a lane, or
// somebody has to say what is wrong with the configuration in.
func result(command, uid string, in []byte) (out []byte, ok bool) {
	socket, out, ok := understand(in, command == "DEL")
	return out, ok && cniproto.HasNoLane(socket, uid)
}

// understand returns the agent's socket and the result that is passed on, nil for DEL.
func understand(in []byte, del bool) (socket string, out []byte, ok bool) {
	c := struct {
		CNIVersion string          `json:"cniVersion"`
		Socket     string          `json:"socket"`
		PrevResult json.RawMessage `json:"prevResult"`
	}{Socket: cniproto.DefaultSocket}
	if json.Unmarshal(in, &c) != nil {
		return "", nil, false
	}
	if del {
		return c.Socket, nil, true // there is nothing to take out
	}
	// A result in the words of another version is to be translated.
	var r struct {
		CNIVersion string `json:"cniVersion"`
	}
	if json.Unmarshal(c.PrevResult, &r) != nil || r.CNIVersion == "" || r.CNIVersion != c.CNIVersion {
		return "", nil, false
	}
	return c.Socket, c.PrevResult, true
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
