// SPDX-License-Identifier: Apache-2.0

// Package adqk8s converts the cluster configuration of Intel's Kubernetes plugins for ADQ
// (ConfigMap adq-cluster-config) to LanePolicies with the same meaning. It reports settings
// that niclane cannot take over, and refuses contradictory ones.
package adqk8s

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/niclane/niclane/k8s/api/params"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/k8s/policy"
)

// Names of the extended resources that Intel's device plugin offers.
const (
	Resource       = "net.intel.com/adq"
	SharedResource = "net.intel.com/adq-shared"
)

// maxConfig is the most that a ConfigMap can hold, in bytes.
const maxConfig = 1 << 20

type cluster struct {
	NodeConfigs []nodeConfig
}

type nodeConfig struct {
	Labels       map[string]string
	EgressMode   string
	FilterPrio   *int
	Globals      globals
	TrafficClass []trafficClass
}

type globals struct {
	Arpfilter, Bpstop, BpstopCfg, Optimize *bool
	Busypoll, Busyread                     *int
	Cpus, Numa, Dev                        string
	Queues                                 int
	Txring, Rxring                         *int
	Txadapt, Rxadapt                       *bool
	Txusecs, Rxusecs                       *int
}

type trafficClass struct {
	Mode          string
	Queues        int
	Pollers       int
	PollerTimeout int
	Cpus, Numa    string
}

// Convert reads the JSON text of the ConfigMap's key adq-cluster-config.json. It returns one policy
// for each of the NodeConfigs. notes says which settings are left out or changed.
func Convert(raw []byte) (out []*v1alpha1.LanePolicy, notes []string, err error) {
	var c cluster
	if err := params.StrictUpTo(raw, &c, maxConfig); err != nil {
		return nil, nil, fmt.Errorf("adq-cluster-config: %w", err)
	}
	if len(c.NodeConfigs) == 0 {
		return nil, nil, errors.New("adq-cluster-config: NodeConfigs is missing or empty")
	}
	var errs []error
	for i, n := range c.NodeConfigs {
		at := fmt.Sprintf("NodeConfigs[%d]", i)
		p := &v1alpha1.LanePolicy{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.Group + "/" + v1alpha1.Version,
			Kind: v1alpha1.Kind}}
		p.Name = fmt.Sprintf("adq-%d", i+1)
		p.Spec.Priority = int32(len(c.NodeConfigs) - i) // the first match wins in Intel's configuration
		if len(n.Labels) > 0 {
			p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: n.Labels}
		}
		note := func(format string, args ...any) { notes = append(notes, at+fmt.Sprintf(format, args...)) }
		if err := n.uplink(&p.Spec.Uplink, note); err != nil {
			errs = append(errs, fmt.Errorf("%s.%w", at, err))
		}
		if err := n.classes(&p.Spec, note); err != nil {
			errs = append(errs, fmt.Errorf("%s.%w", at, err))
			continue
		}
		// Make finds invalid values now. Otherwise, the agent would report them later.
		if _, err := policy.Make(p.Name, &p.Spec, policy.Node{Device: "eth0"}); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", at, err))
		}
		out = append(out, p)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, err
	}
	return out, notes, nil
}

func (n *nodeConfig) uplink(u *v1alpha1.Uplink, note func(string, ...any)) error {
	g := &n.Globals
	u.Dev, u.Queues = g.Dev, g.Queues
	u.BusyPoll, u.BusyRead = duration(g.Busypoll), duration(g.Busyread)
	u.ARPFilter, u.RxRing, u.TxRing = g.Arpfilter, g.Rxring, g.Txring
	u.AdaptiveRx, u.AdaptiveTx = g.Rxadapt, g.Txadapt
	u.CoalesceRx, u.CoalesceTx = duration(g.Rxusecs), duration(g.Txusecs)
	u.CPUs, u.NUMA = word(g.Cpus), numa(g.Numa)
	if slices.ContainsFunc(n.TrafficClass, func(tc trafficClass) bool { return tc.Pollers > 0 }) {
		// If a class has pollers, adqsetup replaces any given value by 0. Intel's DaemonSet runs
		// adqsetup.
		for _, f := range []struct {
			name string
			is   *int
			to   *v1alpha1.Duration
		}{{"Busypoll", g.Busypoll, &u.BusyPoll}, {"Busyread", g.Busyread, &u.BusyRead}} {
			if f.is != nil && *f.is != 0 {
				note(".Globals.%s: found %d; adqsetup sets 0 if a class has pollers", f.name, *f.is)
				*f.to = duration(new(int))
			}
		}
	}
	for _, f := range []struct {
		name string
		on   *bool
	}{{"Bpstop", g.Bpstop}, {"BpstopCfg", g.BpstopCfg}, {"Optimize", g.Optimize}} {
		if f.on != nil && *f.on {
			note(".Globals.%s: not taken over: it is a private flag of Intel's own ice driver", f.name)
		}
	}
	if n.FilterPrio != nil {
		note(".FilterPrio: not taken over: niclane's classifier takes a free preference and lets later filters run")
	}
	switch n.EgressMode {
	case "", "skbedit":
	case "netprio":
		u.Force = map[string]string{"classifier": "net-prio"}
		note(".EgressMode: netprio classifies only packets that pods of the host's network send: leave uplink.force " +
			"out, and all pods are recognised by address")
	default:
		return fmt.Errorf("EgressMode: found %q, want skbedit or netprio", n.EgressMode)
	}
	return nil
}

// classes converts the traffic classes. The last one becomes shared and the others exclusive,
// whatever their Mode is, because Intel's plugin ignores Mode.
func (n *nodeConfig) classes(spec *v1alpha1.LanePolicySpec, note func(string, ...any)) error {
	last := len(n.TrafficClass) - 1
	if last < 0 {
		return errors.New("TrafficClass is missing or empty")
	}
	named := 0
	for i, tc := range n.TrafficClass {
		if tc.Queues < 1 {
			return fmt.Errorf("TrafficClass[%d].Queues: found %d, want at least 1", i, tc.Queues)
		}
		if tc.PollerTimeout < 0 || tc.Pollers < 0 {
			return fmt.Errorf("TrafficClass[%d]: want Pollers and PollerTimeout of at least 0", i)
		}
		// Intel's pods ask by limits for resources of a device plugin, on any release.
		c := v1alpha1.Class{OfferedAs: v1alpha1.OfferedAsResource, Queues: tc.Queues,
			Tuning: v1alpha1.Tuning{CPUs: word(tc.Cpus), NUMA: numa(tc.Numa), Pollers: tc.Pollers}}
		if tc.PollerTimeout > 0 {
			c.PollerTimeout = duration(&tc.PollerTimeout)
		}
		if i == last {
			c.Name, c.Mode, c.ResourceName = "adq-shared", v1alpha1.Shared, SharedResource
			c.Capacity = max(tc.Queues-1, 1) // Intel's plugin offers a device for each queue except the last
			note(".TrafficClass[%d]: shared by %d pods, the number that Intel's plugin offers; all of them share "+
				"its queues", i, c.Capacity)
			spec.Classes = append(spec.Classes, c)
			continue
		}
		if same := find(spec.Classes, c); same != nil {
			same.Capacity++
			continue
		}
		c.Capacity = 1
		if named++; named == 1 {
			c.Name, c.ResourceName = "adq", Resource
		} else {
			c.Name = fmt.Sprintf("adq-%c", 'a'+named-1)
			note(".TrafficClass[%d]: differs from the classes before it, so pods that ask for %s could get either: "+
				"ask for niclane.dev/%s", i, Resource, c.Name)
		}
		if mode := strings.ToLower(tc.Mode); mode != "" && mode != "exclusive" {
			note(".TrafficClass[%d].Mode: %s is taken as Exclusive, as Intel's plugin does for all except the last", i,
				tc.Mode)
		}
		spec.Classes = append(spec.Classes, c)
	}
	return nil
}

// find returns the class that equals c except for name, resource name and capacity, nil if there is
// none.
func find(all []v1alpha1.Class, c v1alpha1.Class) *v1alpha1.Class {
	for i := range all {
		o := all[i]
		o.Name, o.ResourceName, o.Capacity = "", "", 0
		a, _ := json.Marshal(o)
		b, _ := json.Marshal(c)
		if string(a) == string(b) {
			return &all[i]
		}
	}
	return nil
}

// duration converts Intel's microseconds.
func duration(us *int) v1alpha1.Duration {
	switch {
	case us == nil:
		return ""
	case *us != 0 && *us%1000 == 0:
		return v1alpha1.Duration(strconv.Itoa(*us/1000) + "ms")
	}
	return v1alpha1.Duration(strconv.Itoa(*us) + "us")
}

// word converts a keyword of Intel's, such as auto, to the policy's spelling.
func word(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// numa converts a keyword or the number of a NUMA node.
func numa(s string) *intstr.IntOrString {
	if s == "" {
		return nil
	}
	return ptr.To(intstr.Parse(word(s)))
}
