// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/niclane/niclane/k8s/api/params"
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

// hostPort sets the hostPort and hostIP of the container's port i.
func hostPort(c corev1.Container, i int, port int32, addr string) corev1.Container {
	c.Ports[i].HostPort, c.Ports[i].HostIP = port, addr
	return c
}

func grant(container, lane string) Grant { return Grant{Container: container, Class: lane, Lane: lane} }

var both = []netip.Addr{netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("fd00::5")}

var node = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}

// text returns one line for each member: lane, protocol, ports and addresses.
func text(ms []policy.Member) string {
	var b strings.Builder
	for _, m := range ms {
		fmt.Fprintf(&b, "%s %s own %v remote %v %v addrs %v\n", m.Lane, m.Protocol, m.Ports, m.RemotePorts,
			m.RemoteAddrs, m.Addrs)
	}
	return b.String()
}

func TestMembers(t *testing.T) {
	const addrs = "addrs [10.0.0.5/32 fd00::5/128]\n" // both families: IPv4 and IPv6
	for name, c := range map[string]struct {
		pod    *corev1.Pod
		grants []Grant
		want   string
	}{
		"declared ports": {pod(nil, with("a", "6379/TCP", "6380/TCP", "53/UDP")), []Grant{grant("a", "l")},
			"l tcp own [6379 6380] remote [] [] " + addrs + "l udp own [53] remote [] [] " + addrs},
		"none declared": {pod(nil, with("a")), []Grant{grant("a", "l")}, "l tcp own [] remote [] [] " + addrs +
			"l udp own [] remote [] [] " + addrs},
		"annotation narrows": {pod(map[string]string{Annotation: `{"a":{"ports":["80","80-90/TCP"]}}`},
			with("a", "1/TCP")), []Grant{grant("a", "l")}, "l tcp own [80-90] remote [] [] " + addrs},
		"claim goes first": {pod(nil, with("a", "1/TCP")),
			[]Grant{{Lane: "l", Parameters: &params.Parameters{RemotePorts: []string{"443"},
				RemoteAddrs: []string{"192.0.2.0/24"}}}}, "l tcp own [] remote [443] [192.0.2.0/24] " + addrs},
		"two containers apart": {pod(nil, with("a", "1/TCP"), with("b", "2/TCP")),
			[]Grant{grant("a", "x"), grant("b", "y")}, "x tcp own [1] remote [] [] " + addrs +
				"y tcp own [2] remote [] [] " + addrs},
		"apart by protocol": {pod(nil, with("a", "53/TCP"), with("b", "53/UDP")),
			[]Grant{grant("a", "x"), grant("b", "y")}, "x tcp own [53] remote [] [] " + addrs +
				"y udp own [53] remote [] [] " + addrs},
		"the same lane": {pod(nil, with("a"), with("b")), []Grant{grant("a", "x"), grant("b", "x")},
			"x tcp own [] remote [] [] " + addrs + "x udp own [] remote [] [] " + addrs},
		"intel's": {pod(map[string]string{
			IntelAnnotation: `[{"name":"a","ports":{"local":["6379/TCP"],"remote":["all"]}}]`}, with("a")),
			[]Grant{grant("a", "l")}, "l tcp own [6379] remote [] [] " + addrs},
		"host ports": {pod(nil, hostPort(with("a", "80/TCP", "81/TCP"), 0, 8080, ""),
			hostPort(with("b", "82/TCP"), 0, 8082, "")), []Grant{grant("a", "l")},
			"l tcp own [80 81] remote [] [] " + addrs +
				"l tcp own [8080] remote [] [] addrs [192.0.2.1/32]\nl tcp own [8080] remote [] [] addrs " +
				"[2001:db8::1/128]\n"},
		"one host address": {pod(nil, hostPort(with("a", "80/TCP"), 0, 8080, "192.0.2.1")),
			[]Grant{grant("a", "l")}, "l tcp own [80] remote [] [] " + addrs +
				"l tcp own [8080] remote [] [] addrs [192.0.2.1/32]\n"},
		"a host port that is not the lane's": {pod(map[string]string{Annotation: `{"a":{"ports":["81"]}}`},
			hostPort(with("a", "80/TCP"), 0, 8080, "")), []Grant{grant("a", "l")}, "l tcp own [81] remote [] [] " +
			addrs},
		"host ports of two lanes": {pod(nil, hostPort(with("a", "1/TCP"), 0, 30001, ""),
			hostPort(with("b", "2/TCP"), 0, 30002, "0.0.0.0")), []Grant{grant("a", "x"), grant("b", "y")},
			"x tcp own [1] remote [] [] " + addrs +
				"x tcp own [30001] remote [] [] addrs [192.0.2.1/32]\nx tcp own [30001] remote [] [] addrs " +
				"[2001:db8::1/128]\n" +
				"y tcp own [2] remote [] [] " + addrs +
				"y tcp own [30002] remote [] [] addrs [192.0.2.1/32]\ny tcp own [30002] remote [] [] addrs " +
				"[2001:db8::1/128]\n"},
		"intel's sample": {pod(
			map[string]string{IntelAnnotation: `[ { "name": "a", "ports": { "local": ["6379/  TCP"], "remote": ["ALL"] } } ]`}, with("a")), []Grant{grant("a", "l")}, "l tcp own [6379] remote [] [] " + addrs},
		"empty annotations": {pod(map[string]string{IntelAnnotation: "", Annotation: " "}, with("a", "1/TCP")),
			[]Grant{grant("a", "l")}, "l tcp own [1] remote [] [] " + addrs},
		"intel's all": {pod(map[string]string{IntelAnnotation: `[{"name":"a","ports":{"local":["all"]}}]`},
			with("a", "1/TCP")), []Grant{grant("a", "l")}, "l tcp own [] remote [] [] " + addrs +
			"l udp own [] remote [] [] " + addrs},
	} {
		t.Run(name, func(t *testing.T) {
			ms, err := Members(c.pod, Where{Addrs: both, Node: node}, c.grants)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, text(ms)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			for _, m := range ms {
				if front := m.Addrs[0] != netip.PrefixFrom(both[0], 32); len(m.Name) > 32 ||
					strings.HasPrefix(m.Name, "redis-0-") == front ||
					strings.HasPrefix(m.Name, FrontendPrefix) != front {
					t.Errorf("name %q", m.Name)
				}
			}
		})
	}
}

// list returns n ports in JSON, two apart, so that they do not join to a range.
func list(n int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf(`"%d"`, 1000+2*i))
	}
	return strings.Join(out, ",")
}

// TestFault5StrictPorts tests values on which Intel's plugin panics, or which it skips or
// truncates. It includes fault 6: containers of different lanes with the same port.
func TestFault5StrictPorts(t *testing.T) {
	one := with("a", "1/TCP")
	for name, c := range map[string]struct {
		pod    *corev1.Pod
		grants []Grant
		want   string
	}{
		"intel: ports missing": {pod(map[string]string{IntelAnnotation: `[{"name":"a"}]`}, one), nil,
			"[0].ports is missing"},
		"intel: no protocol": {pod(map[string]string{IntelAnnotation: `[{"name":"a","ports":{"local":["80"]}}]`},
			one), nil, `ports.local[0]: found "80"`},
		"intel: 65616": {pod(map[string]string{IntelAnnotation: `[{"name":"a","ports":{"local":["65616/TCP"]}}]`},
			one), nil, `found "65616/TCP"`},
		"intel: protocol": {pod(map[string]string{IntelAnnotation: `[{"name":"a","ports":{"local":["80/TPC"]}}]`},
			one), nil, `found "80/TPC"`},
		"intel: name": {pod(map[string]string{IntelAnnotation: `[{"name":"b","ports":{}}]`}, one), nil,
			`no container "b" (has: a)`},
		"intel: unknown key": {pod(map[string]string{IntelAnnotation: `[{"name":"a","port":{}}]`}, one), nil,
			`unknown field "port"`},
		"intel: not JSON": {pod(map[string]string{IntelAnnotation: `[{`}, one), nil, "not the JSON"},
		"name of a container": {pod(map[string]string{Annotation: `{"b":{}}`}, one), nil,
			`no container "b" (has: a)`},
		"a port": {pod(map[string]string{Annotation: `{"a":{"ports":["x"]}}`}, one), nil,
			`ports[0]: found "x"`},
		"both annotations": {pod(map[string]string{Annotation: `{"a":{}}`, IntelAnnotation: `[]`}, one), nil,
			"one of the two"},
		"SCTP alone": {pod(nil, with("a", "1/SCTP")), []Grant{grant("a", "l")}, "TCP and UDP"},
		"no protocol in common": {pod(
			map[string]string{Annotation: `{"a":{"ports":["1/TCP"],"remotePorts":["2/UDP"]}}`}, one),
			[]Grant{grant("a", "l")}, "no protocol in common"},
		"a frontend": {pod(map[string]string{Annotation: `{"a":{"frontends":["10250"]}}`}, one),
			[]Grant{grant("a", "l")}, "frontends: not taken any more"},
		"another host's address": {pod(nil, hostPort(with("a", "80/TCP"), 0, 8080, "198.51.100.1")),
			[]Grant{grant("a", "l")}, "hostIP 198.51.100.1 is not an address of the node"},
		"one host port, two lanes": {pod(nil, hostPort(with("a", "1/TCP"), 0, 30001, ""),
			hostPort(with("b", "2/TCP"), 0, 30001, "")), []Grant{grant("a", "x"), grant("b", "y")},
			"both have tcp port 30001"},
		"too many patterns": {pod(map[string]string{Annotation: `{"a":{"ports":[` + list(65) +
			`],"remoteAddrs":["192.0.2.1","192.0.2.2"]}}`}, one), []Grant{grant("a", "l")},
			"260 patterns, want at most 256"},
		"fault 6: all and all": {pod(nil, with("a"), with("b")), []Grant{grant("a", "x"), grant("b", "y")},
			"container a and container b are in different lanes"},
		"fault 6: the same port": {pod(nil, with("a", "80/TCP"), with("b", "80/TCP")),
			[]Grant{grant("a", "x"), grant("b", "y")}, "tcp port 80"},
		"fault 6: all and one": {pod(nil, with("a"), with("b", "80/TCP")), []Grant{grant("a", "x"), grant("b", "y")},
			"tcp port 80"},
	} {
		t.Run(name, func(t *testing.T) {
			ms, err := Members(c.pod, Where{Addrs: both, Node: node}, c.grants)
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
			ms, err := Members(p, Where{Addrs: both, Node: node}, []Grant{grant("a", "x")})
			if err == nil && len(ms) == 0 {
				t.Errorf("%q: nothing, and no error", value)
			}
		}
	})
}
