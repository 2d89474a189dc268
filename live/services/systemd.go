// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"net/netip"
	"strings"

	"github.com/niclane/niclane/internal/systemctl"
)

// A unit is a systemd socket, and the service that it starts.
type unit struct{ name, triggers string }

// A place is where a socket listens. The address has no zone: sock_diag has none either.
type place struct {
	protocol string // "tcp" or "udp"
	local    netip.AddrPort
}

// socketUnits returns systemd's sockets, as systemctl prints them.
func socketUnits(ctx context.Context) (map[place]unit, error) {
	out, err := systemctl.Run(ctx, "show", "--property=Id,Listen,Triggers", "*.socket")
	if err != nil {
		return nil, err
	}
	return parseSocketUnits(out), nil
}

// parseSocketUnits reads blocks such as
//
//	Id=ssh.socket
//	Triggers=ssh.service
//	Listen=0.0.0.0:22 (Stream)
//	Listen=[::]:22 (Stream)
func parseSocketUnits(text string) map[place]unit {
	units := map[place]unit{}
	for block := range strings.SplitSeq(text, "\n\n") {
		var u unit
		var listen []string
		for line := range strings.Lines(block) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			switch key {
			case "Id":
				u.name = value
			case "Triggers":
				u.triggers, _, _ = strings.Cut(value, " ")
			case "Listen":
				listen = append(listen, value)
			}
		}
		for _, l := range listen {
			addr, kind, _ := strings.Cut(l, " (")
			protocol := map[string]string{"Stream)": "tcp", "Datagram)": "udp"}[kind]
			if ap, err := netip.ParseAddrPort(addr); err == nil && protocol != "" {
				units[place{protocol, netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())}] = u
			}
		}
	}
	return units
}
