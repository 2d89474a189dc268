// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// An object is a Pod as kubectl prints it, with only the fields that this package needs.
type object struct {
	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
		UID       string `json:"uid"`
		// DeletionTimestamp is set when the pod is being deleted.
		DeletionTimestamp string `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec struct {
		NodeName   string `json:"nodeName"`
		Containers []struct {
			Name string `json:"name"`
		} `json:"containers"`
	} `json:"spec"`
	Status struct {
		Phase             string      `json:"phase"`
		Reason            string      `json:"reason"`
		Message           string      `json:"message"`
		PodIP             string      `json:"podIP"`
		Conditions        []condition `json:"conditions"`
		ContainerStatuses []struct {
			Name    string           `json:"name"`
			Image   string           `json:"image"`
			ImageID string           `json:"imageID"`
			State   map[string]state `json:"state"` // keys: waiting, running, terminated
		} `json:"containerStatuses"`
	} `json:"status"`
}

type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

type state struct {
	Reason   string `json:"reason"`
	Message  string `json:"message"`
	ExitCode *int   `json:"exitCode"`
}

func (o *object) is(kind string) (condition, bool) {
	i := slices.IndexFunc(o.Status.Conditions, func(c condition) bool { return c.Type == kind })
	if i < 0 {
		return condition{}, false
	}
	return o.Status.Conditions[i], o.Status.Conditions[i].Status == "True"
}

func (o *object) ready() bool {
	_, yes := o.is("Ready")
	return yes && o.Status.PodIP != "" && o.Metadata.DeletionTimestamp == ""
}

// over reports whether the pod has ended.
func (o *object) over() bool { return o.Status.Phase == "Succeeded" || o.Status.Phase == "Failed" }

// unschedulable returns why no node accepts the pod; "": a node has accepted it, or that is not known
// yet.
func (o *object) unschedulable() string {
	if c, yes := o.is("PodScheduled"); !yes && c.Reason == "Unschedulable" {
		return cmp.Or(c.Message, c.Reason)
	}
	return ""
}

// how describes the pod's state, in Kubernetes' words.
func (o *object) how() string {
	text := []string{cmp.Or(o.Status.Phase, "no component of the cluster has seen it yet")}
	add := func(parts ...string) {
		parts = slices.DeleteFunc(parts, func(p string) bool { return p == "" })
		if len(parts) > 0 {
			text = append(text, strings.Join(parts, ": "))
		}
	}
	add(o.Status.Reason, o.Status.Message)
	add(o.unschedulable())
	for _, c := range o.Status.ContainerStatuses {
		for _, kind := range slices.Sorted(maps.Keys(c.State)) {
			s := c.State[kind]
			if kind == "running" {
				continue
			}
			reason := s.Reason
			if s.ExitCode != nil {
				reason = fmt.Sprintf("%s (exit code %d)", reason, *s.ExitCode)
			}
			add("container "+c.Name, reason, s.Message)
		}
	}
	return strings.Join(text, "; ")
}

// server describes what runs in the pod: the first container's image, and the node.
func (o *object) server() string {
	for _, c := range o.Status.ContainerStatuses {
		if len(o.Spec.Containers) == 0 || c.Name != o.Spec.Containers[0].Name {
			continue // the statuses are in the order of their names
		}
		text := c.Image
		if c.ImageID != "" && c.ImageID != c.Image {
			text += " (" + c.ImageID + ")"
		}
		return text + " on " + o.Spec.NodeName
	}
	return ""
}

// label is the label on each object that a run creates. Its value is the run's own.
const label = "niclane.dev/bench"

// grown returns the manifest of one pod. It adds a name and label of the pod's own, the limits of a
// variant, and the settings that a measured server needs.
func grown(manifest map[string]any, w Wanted, suffix string) ([]byte, error) {
	text, err := json.Marshal(manifest) // a copy
	if err != nil {
		return nil, err
	}
	var pod map[string]any
	if err := json.Unmarshal(text, &pod); err != nil {
		return nil, err
	}
	metadata, spec := under(pod, "metadata"), under(pod, "spec")
	name, _ := metadata["name"].(string)
	metadata["name"] = cmp.Or(name, "server") + "-" + suffix
	under(metadata, "labels")[label] = w.Run
	// A server that ended and was restarted would have lost its keys.
	spec["restartPolicy"] = "Never"
	if w.Longest > 0 {
		spec["activeDeadlineSeconds"] = int64((w.Longest + time.Second - 1) / time.Second)
	}
	containers, _ := spec["containers"].([]any)
	if len(containers) == 0 {
		return nil, fmt.Errorf("no containers")
	}
	first, ok := containers[0].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the first container: %T, want a mapping", containers[0])
	}
	if len(w.Limits) > 0 {
		limits := under(under(first, "resources"), "limits")
		for resource, amount := range w.Limits {
			limits[resource] = amount
		}
	}
	return json.Marshal(pod)
}

// under returns the mapping m[name], and creates it if it is missing.
func under(m map[string]any, name string) map[string]any {
	inner, ok := m[name].(map[string]any)
	if !ok {
		inner = map[string]any{}
		m[name] = inner
	}
	return inner
}
