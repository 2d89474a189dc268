// SPDX-License-Identifier: Apache-2.0

// Package params reads LaneParameters, which say which packets of a pod belong to its lane. They
// are JSON in the opaque parameters of a ResourceClaim or, without apiVersion and kind, in the
// annotation niclane.dev/lanes. The package refuses unknown fields, and reports every problem.
package params

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
)

// APIVersion and Kind of the parameters in a ResourceClaim.
const (
	APIVersion = "niclane.dev/v1alpha1"
	Kind       = "LaneParameters"
)

// MaxBytes is the largest size of parameters or of an annotation, in bytes.
const MaxBytes = 10 << 10 // k8s.io/api/resource/v1: OpaqueParametersMaxLength

// Parameters limit a lane to some of a pod's packets.
type Parameters struct {
	// Ports are the pod's own ports: "6379" or "6379/TCP" for a TCP port, "53/UDP", "8000-8010/TCP",
	// "all/TCP", "all/UDP", "all". If none is given, the lane gets the ports that the container
	// declares (containerPorts), or all ports if it declares none.
	Ports []string `json:"ports,omitempty"`
	// RemotePorts are the other side's ports, for connections that the pod opens. They are written
	// like Ports. Empty means any port.
	RemotePorts []string `json:"remotePorts,omitempty"`
	// RemoteAddrs are the other side's addresses or networks. Empty means any address.
	RemoteAddrs []string `json:"remoteAddrs,omitempty"`
}

// Ports is a range of ports of one protocol.
type Ports struct {
	// Protocol is "tcp" or "udp".
	Protocol string
	// First and Last are the ends of the range, 1 to 65535. Both 0 means every port.
	First, Last uint16
}

// Decode reads the opaque parameters of a ResourceClaim.
func Decode(raw []byte) (*Parameters, error) {
	var p struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Parameters
	}
	if err := Strict(raw, &p); err != nil {
		return nil, fmt.Errorf("parameters: %w", err)
	}
	if p.APIVersion != APIVersion || p.Kind != Kind {
		return nil, fmt.Errorf("parameters: found apiVersion %q, kind %q, want %q, %q", p.APIVersion, p.Kind,
			APIVersion, Kind)
	}
	return &p.Parameters, p.Parameters.Check()
}

// Strict decodes one JSON document into v. It refuses unknown fields and data after the
// document.
func Strict(raw []byte, v any) error { return StrictUpTo(raw, v, MaxBytes) }

// StrictUpTo does the same as Strict, but with the size limit most, in bytes, instead of MaxBytes.
func StrictUpTo(raw []byte, v any, most int) error {
	if len(raw) > most {
		return fmt.Errorf("%d bytes, want at most %d", len(raw), most)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		if strings.HasSuffix(err.Error(), `unknown field "frontends"`) {
			return errors.New("frontends: not taken any more: the lane has the pod's hostPorts, and the frontends of " +
				"the Services that select the pod (services.enabled in the chart)")
		}
		return fmt.Errorf("not the JSON that is wanted: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("found more text after the JSON document")
	}
	return nil
}

// Check returns all problems of p as one error, nil if there are none.
func (p *Parameters) Check() error {
	var errs []error
	for i, s := range p.Ports {
		if _, err := ParsePorts(s); err != nil {
			errs = append(errs, fmt.Errorf("ports[%d]: %w", i, err))
		}
	}
	for i, s := range p.RemotePorts {
		if _, err := ParsePorts(s); err != nil {
			errs = append(errs, fmt.Errorf("remotePorts[%d]: %w", i, err))
		}
	}
	for i, s := range p.RemoteAddrs {
		if _, err := parsePrefix(s); err != nil {
			errs = append(errs, fmt.Errorf("remoteAddrs[%d]: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

// Remotes returns RemoteAddrs as prefixes. It leaves out invalid ones, which Check reports.
func (p *Parameters) Remotes() []netip.Prefix {
	var out []netip.Prefix
	for _, s := range p.RemoteAddrs {
		if a, err := parsePrefix(s); err == nil {
			out = append(out, a)
		}
	}
	return out
}

// ParsePorts reads one item of Ports or RemotePorts. For "all" without a protocol it returns all
// TCP ports and all UDP ports.
func ParsePorts(s string) ([]Ports, error) {
	const want = `want PORT, FIRST-LAST or "all", and /TCP or /UDP if it is not TCP`
	number, protocol, given := strings.Cut(s, "/")
	p := Ports{Protocol: strings.ToLower(protocol)}
	switch {
	case !given && number == "all":
		return []Ports{{Protocol: "tcp"}, {Protocol: "udp"}}, nil
	case !given:
		p.Protocol = "tcp"
	case p.Protocol != "tcp" && p.Protocol != "udp":
		return nil, fmt.Errorf("found %q: lanes know TCP and UDP; %s", s, want)
	}
	if number == "all" {
		return []Ports{p}, nil
	}
	first, last, ranged := strings.Cut(number, "-")
	if !ranged {
		last = first
	}
	var err1, err2 error
	p.First, err1 = parsePort(first)
	p.Last, err2 = parsePort(last)
	if err1 != nil || err2 != nil {
		return nil, fmt.Errorf("found %q, %s; ports are 1 to 65535", s, want)
	}
	if p.First > p.Last {
		return nil, fmt.Errorf("found %q, which ends before it begins", s)
	}
	return []Ports{p}, nil
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err == nil && (n == 0 || strconv.FormatUint(n, 10) != s) {
		err = strconv.ErrRange
	}
	return uint16(n), err
}

func parsePrefix(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" && !a.Is4In6() {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("found %q, want an address (192.0.2.1) or a network (192.0.2.0/24)", s)
	}
	if p.Masked() != p {
		return netip.Prefix{}, fmt.Errorf("found %s, which has bits set behind its /%d, want %s", p, p.Bits(),
			p.Masked())
	}
	return p, nil
}
