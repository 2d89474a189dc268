// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/niclane/niclane/k8s/claim"
	"github.com/niclane/niclane/k8s/policy"
)

func pod(annotations map[string]string, containers ...corev1.Container) *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: containers}}
	p.Name, p.UID, p.Annotations = "redis.0", "u-1", annotations
	return p
}

func with(name string, ports ...string) corev1.Container {
	c := corev1.Container{Name: name}
	for _, s := range ports {
		var port corev1.ContainerPort
		number, protocol, _ := strings.Cut(s, "/")
		_, _ = fmt.Sscan(number, &port.ContainerPort)
		port.Protocol = corev1.Protocol(protocol)
		c.Ports = append(c.Ports, port)
	}
	return c
}

func grant(container, lane string) Grant { return Grant{Container: container, Class: lane, Lane: lane} }

var both = []netip.Addr{netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("fd00::5")}

// text writes members in short.
func text(ms []policy.Member) string {
	var b strings.Builder
	for _, m := range ms {
		fmt.Fprintf(&b, "%s %s own %v remote %v %v addrs %v\n", m.Lane, m.Protocol, m.Ports, m.RemotePorts, m.RemoteAddrs, m.Addrs)
	}
	return b.String()
}

func TestMembers(t *testing.T) {
	const addrs = "addrs [10.0.0.5/32 fd00::5/128]\n" // fault 8: both families
	for name, c := range map[string]struct {
		pod    *corev1.Pod
		grants []Grant
		want   string
	}{
		"declared ports":       {pod(nil, with("a", "6379/TCP", "6380/TCP", "53/UDP")), []Grant{grant("a", "l")}, "l tcp own [6379 6380] remote [] [] " + addrs + "l udp own [53] remote [] [] " + addrs},
		"none declared":        {pod(nil, with("a")), []Grant{grant("a", "l")}, "l tcp own [] remote [] [] " + addrs + "l udp own [] remote [] [] " + addrs},
		"annotation narrows":   {pod(map[string]string{Annotation: `{"a":{"ports":["80","80-90/TCP"]}}`}, with("a", "1/TCP")), []Grant{grant("a", "l")}, "l tcp own [80-90] remote [] [] " + addrs},
		"claim goes first":     {pod(nil, with("a", "1/TCP")), []Grant{{Lane: "l", Parameters: &claim.Parameters{RemotePorts: []string{"443"}, RemoteAddrs: []string{"192.0.2.0/24"}}}}, "l tcp own [] remote [443] [192.0.2.0/24] " + addrs},
		"two containers apart": {pod(nil, with("a", "1/TCP"), with("b", "2/TCP")), []Grant{grant("a", "x"), grant("b", "y")}, "x tcp own [1] remote [] [] " + addrs + "y tcp own [2] remote [] [] " + addrs},
		"apart by protocol":    {pod(nil, with("a", "53/TCP"), with("b", "53/UDP")), []Grant{grant("a", "x"), grant("b", "y")}, "x tcp own [53] remote [] [] " + addrs + "y udp own [53] remote [] [] " + addrs},
		"the same lane":        {pod(nil, with("a"), with("b")), []Grant{grant("a", "x"), grant("b", "x")}, "x tcp own [] remote [] [] " + addrs + "x udp own [] remote [] [] " + addrs},
		"intel's":              {pod(map[string]string{IntelAnnotation: `[{"name":"a","ports":{"local":["6379/TCP"],"remote":["all"]}}]`}, with("a")), []Grant{grant("a", "l")}, "l tcp own [6379] remote [] [] " + addrs},
		"intel's all":          {pod(map[string]string{IntelAnnotation: `[{"name":"a","ports":{"local":["all"]}}]`}, with("a", "1/TCP")), []Grant{grant("a", "l")}, "l tcp own [] remote [] [] " + addrs + "l udp own [] remote [] [] " + addrs},
	} {
		t.Run(name, func(t *testing.T) {
			ms, err := Members(c.pod, both, c.grants, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, text(ms)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			for _, m := range ms {
				if len(m.Name) > 32 || !strings.HasPrefix(m.Name, "redis-0-") {
					t.Errorf("name %q", m.Name)
				}
			}
		})
	}
}

// TestFault5StrictPorts: what Intel's plugin panics on, skips or truncates.
// TestFault6ContainersCollide is among them: two containers of different lanes.
func TestFault5StrictPorts(t *testing.T) {
	one := with("a", "1/TCP")
	for name, c := range map[string]struct {
		pod    *corev1.Pod
		grants []Grant
		want   string
	}{
		"intel: ports missing":   {pod(map[string]string{IntelAnnotation: `[{"name":"a"}]`}, one), nil, "[0].ports is missing"},
		"intel: no protocol":     {pod(map[string]string{IntelAnnotation: `[{"name":"a","ports":{"local":["80"]}}]`}, one), nil, `ports.local[0]: found "80"`},
		"intel: 65616":           {pod(map[string]string{IntelAnnotation: `[{"name":"a","ports":{"local":["65616/TCP"]}}]`}, one), nil, `found "65616/TCP"`},
		"intel: protocol":        {pod(map[string]string{IntelAnnotation: `[{"name":"a","ports":{"local":["80/TPC"]}}]`}, one), nil, `found "80/TPC"`},
		"intel: name":            {pod(map[string]string{IntelAnnotation: `[{"name":"b","ports":{}}]`}, one), nil, `no container "b" (has: a)`},
		"intel: unknown key":     {pod(map[string]string{IntelAnnotation: `[{"name":"a","port":{}}]`}, one), nil, `unknown field "port"`},
		"intel: not JSON":        {pod(map[string]string{IntelAnnotation: `[{`}, one), nil, "not the JSON"},
		"name of a container":    {pod(map[string]string{Annotation: `{"b":{}}`}, one), nil, `no container "b" (has: a)`},
		"a port":                 {pod(map[string]string{Annotation: `{"a":{"ports":["x"]}}`}, one), nil, `ports[0]: found "x"`},
		"both annotations":       {pod(map[string]string{Annotation: `{"a":{}}`, IntelAnnotation: `[]`}, one), nil, "one of the two"},
		"SCTP alone":             {pod(nil, with("a", "1/SCTP")), []Grant{grant("a", "l")}, "TCP and UDP"},
		"no protocol in common":  {pod(map[string]string{Annotation: `{"a":{"ports":["1/TCP"],"remotePorts":["2/UDP"]}}`}, one), []Grant{grant("a", "l")}, "no protocol in common"},
		"fault 6: all and all":   {pod(nil, with("a"), with("b")), []Grant{grant("a", "x"), grant("b", "y")}, "container a and container b are in different lanes"},
		"fault 6: the same port": {pod(nil, with("a", "80/TCP"), with("b", "80/TCP")), []Grant{grant("a", "x"), grant("b", "y")}, "tcp port 80"},
		"fault 6: all and one":   {pod(nil, with("a"), with("b", "80/TCP")), []Grant{grant("a", "x"), grant("b", "y")}, "tcp port 80"},
	} {
		t.Run(name, func(t *testing.T) {
			ms, err := Members(c.pod, both, c.grants, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, %v, want an error with %q", text(ms), err, c.want)
			}
		})
	}
}

func FuzzAnnotations(f *testing.F) {
	f.Add(`{"a":{"ports":["80","all/UDP"]}}`, `[{"name":"a","ports":{"local":["6379/TCP"],"remote":["all"]}}]`)
	f.Fuzz(func(t *testing.T, ours, intels string) {
		for key, value := range map[string]string{Annotation: ours, IntelAnnotation: intels} {
			p := pod(map[string]string{key: value}, with("a"), with("b", "1/TCP"))
			ms, err := Members(p, both, []Grant{grant("a", "x")}, nil)
			if err == nil && len(ms) == 0 {
				t.Errorf("%q: nothing, and no error", value)
			}
		}
	})
}
