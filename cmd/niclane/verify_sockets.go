// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"

	niclaneapp "github.com/niclane/niclane/app"
	"github.com/niclane/niclane/app/sockiter"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/lane/verify"
)

// sockets describes this host's TCP connections at the start of a watch.
type sockets struct {
	reader *sockiter.Reader
	before map[uint64]uint32 // number of received segments, by socket cookie
}

// watchSockets records how many segments each connection has received so far. If the kernel cannot
// list sockets (no BTF, or before Linux 5.9), it returns nil. Then verify cannot check sockets,
// only packets.
func watchSockets() *sockets {
	r, err := sockiter.Open(sockiter.Filter{Connections: true})
	if err != nil {
		return nil
	}
	s := &sockets{reader: r, before: map[uint64]uint32{}}
	list, err := r.Sockets()
	if err != nil {
		r.Close()
		return nil
	}
	for _, x := range list {
		s.before[x.Cookie] = x.Received
	}
	return s
}

// served returns the connections with other hosts that have received segments since watchSockets
// was called. If threads is true, it adds the thread that serves each connection.
func (s *sockets) served(threads bool) []verify.Connection {
	list, err := s.reader.Sockets()
	if err != nil {
		return nil
	}
	own := map[string]bool{} // addresses of all connections, seen from their other end
	for _, x := range list {
		own[x.Remote.String()+x.Local.String()] = true
	}
	var out []verify.Connection
	var inodes []uint64
	for _, x := range list {
		if before, ok := s.before[x.Cookie]; ok && before == x.Received || own[x.Local.String()+x.Remote.String()] {
			continue
		}
		out = append(out, verify.Connection{Local: x.Local, Remote: x.Remote, NAPI: x.NAPI, CPU: x.CPU})
		inodes = append(inodes, x.Inode)
	}
	if !threads {
		return out
	}
	by, err := niclaneapp.Workers(inodes)
	if err != nil {
		return out // without the threads
	}
	for i, inode := range inodes {
		out[i].Thread, out[i].Process = by[inode].TID, by[inode].Comm
	}
	return out
}

// findings adds the findings about sockets to the results. A lane that was rolled back meanwhile
// gets none.
func (s *sockets) findings(ctx context.Context, a *app, results []verifyOutput) {
	if s == nil {
		return
	}
	defer s.reader.Close()
	js, err := a.Engine().Journals()
	if err != nil {
		return
	}
	conns := s.served(slices.ContainsFunc(js, func(j *journal.Journal) bool {
		return slices.ContainsFunc(a.Engine().Applied(j).Lanes, func(l plan.FittedLane) bool { return l.Aligned })
	}))
	if len(conns) == 0 {
		return
	}
	for i := range results {
		at := slices.IndexFunc(js, func(j *journal.Journal) bool { return j.Head().Config == results[i].Config })
		if at < 0 {
			continue
		}
		seen, err := a.Engine().Look(ctx, func(j *journal.Journal) bool { return j.Head().Config == results[i].Config })
		if err != nil || len(seen) != 1 {
			continue
		}
		v := seen[0]
		for _, dev := range results[i].Devices {
			results[i].Findings = append(results[i].Findings, verify.Sockets(v.Applied, v.Now, dev, conns)...)
		}
	}
}
