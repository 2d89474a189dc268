// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Policy is a LanePolicy that Follow has created. It exists until Remove.
type Policy struct {
	k    Kubectl
	name string
}

// followTime is how long nodes may take to apply a policy. A node cannot change lanes that pods use
// until the pods are gone.
const followTime = time.Minute

// removeTime is how long nodes may take to remove the lanes.
const removeTime = 30 * time.Second

// askAgain is the time between two reads of a policy's status.
const askAgain = 200 * time.Millisecond

// Quantity returns a rate in bit/s as the quantity that a LanePolicy has: 10G, 1500M. It is never a
// plain number, which YAML does not read as text.
func Quantity(rate int64) string {
	i := 0
	for ; i+1 < len("kMGT") && rate%1e6 == 0; i++ {
		rate /= 1e3
	}
	return strconv.FormatFloat(float64(rate)/1e3, 'f', -1, 64) + "kMGT"[i:i+1]
}

// Follow creates a LanePolicy from the manifest, with a name and label of its own. It waits until the
// nodes that the policy selects have applied it. If Follow returns a policy, the caller must remove
// it, even after an error.
func Follow(ctx context.Context, k Kubectl, manifest map[string]any, run string) (*Policy, error) {
	text, err := json.Marshal(manifest) // a copy
	if err != nil {
		return nil, err
	}
	var policy map[string]any
	if err := json.Unmarshal(text, &policy); err != nil {
		return nil, err
	}
	metadata := under(policy, "metadata")
	name, _ := metadata["name"].(string)
	p := &Policy{k: k, name: cmp.Or(name, "bench") + "-" + strings.ToLower(rand.Text()[:6])}
	metadata["name"] = p.name
	under(metadata, "labels")[label] = run
	if text, err = json.Marshal(policy); err != nil {
		return nil, err
	}
	if _, err := k.call(ctx, text, "create", "--filename=-", "--output=json"); err != nil {
		return p, fmt.Errorf("%s: %w", p.Name(), err)
	}
	return p, p.applied(ctx)
}

// Name returns the name of the policy for messages.
func (p *Policy) Name() string { return "lanepolicy " + p.name }

// Remove makes the nodes remove the lanes, and deletes the policy. A policy that does not exist is no
// error.
func (p *Policy) Remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, removeTime, fmt.Errorf("its lanes are not gone after %v", removeTime))
	defer cancel()
	_, err := p.k.call(ctx, nil, "patch", "lanepolicy", p.name, "--type=merge", `--patch={"spec":{"classes":[]}}`)
	gone := err != nil && strings.Contains(err.Error(), "NotFound")
	if err == nil {
		// Wait before the policy is deleted: after that, it has no status.
		var s policyStatus
		if s, err = p.status(ctx); err == nil && s.Status.Nodes > 0 {
			err = p.applied(ctx)
		}
	}
	if gone {
		err = nil
	}
	// Delete the policy even after a timeout.
	if _, failed := p.k.call(context.WithoutCancel(ctx), nil, "delete", "lanepolicy", p.name, "--ignore-not-found",
		"--wait"); failed != nil {
		err = errors.Join(err, fmt.Errorf("%w; to delete it: kubectl delete lanepolicy %s", failed, p.name))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", p.Name(), err)
	}
	return nil
}

// policyStatus is a LanePolicy as kubectl prints it, with only the fields that this package needs.
type policyStatus struct {
	Metadata struct {
		Generation int64 `json:"generation"`
	} `json:"metadata"`
	Status struct {
		ObservedGeneration int64       `json:"observedGeneration"`
		Nodes              int         `json:"nodeCount"`
		Conditions         []condition `json:"conditions"`
	} `json:"status"`
}

// missing says why not all nodes that follow the policy have applied it; "" if all have.
func (s *policyStatus) missing() string {
	if s.Status.ObservedGeneration != s.Metadata.Generation {
		return "niclane-controller has not looked at it yet"
	}
	for _, typ := range []string{"Accepted", "Ready"} {
		is := condition{Status: "Unknown"}
		for _, c := range s.Status.Conditions {
			if c.Type == typ {
				is = c
			}
		}
		if is.Status != "True" {
			return fmt.Sprintf("%s is %s: %s: %s", typ, is.Status, is.Reason, is.Message)
		}
	}
	return ""
}

func (p *Policy) status(ctx context.Context) (s policyStatus, err error) {
	out, err := p.k.call(ctx, nil, "get", "lanepolicy", p.name, "--output=json")
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(out, &s)
}

// applied waits until every node that follows the policy has applied it.
func (p *Policy) applied(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, followTime, fmt.Errorf("not applied within %v", followTime))
	defer cancel()
	for why := ""; ; {
		s, err := p.status(ctx)
		switch {
		case err == nil:
			if why = s.missing(); why == "" {
				return nil
			}
		case ctx.Err() == nil:
			why = err.Error()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %s", p.Name(), context.Cause(ctx), why)
		case <-time.After(askAgain):
		}
	}
}
