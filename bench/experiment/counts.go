// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	y "github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/lane/intent"
)

// Words for server.threads and server.queues, until completeCounts replaces them by numbers.
const (
	perCPU    = -1 // one for each processor of the server
	perThread = -2 // one for each thread of the server
)

// count returns a Kind (type of value): a number from 1 to most, or one of the words, which stand for
// numbers of the host.
func count(most int, words map[string]int) y.Kind[int] {
	number := y.Integer(1, most)
	names := slices.Sorted(maps.Keys(words))
	k := y.Kind[int]{
		Want:   number.Want + ", or " + y.OneOf(names),
		Schema: y.Schema{"anyOf": []any{number.Schema, y.Schema{"enum": names}}},
	}
	k.Read = func(v y.Value) (int, bool) {
		text, _, scalar := v.Scalar()
		if n, ok := words[text]; ok {
			return n, true
		}
		if n, err := strconv.Atoi(text); !scalar || err != nil || !y.IsDecimal(text) || n < 1 || n > most {
			v.Wrong(k.Want)
			return 0, false
		}
		return number.Read(v)
	}
	return k
}

// completeCounts replaces the words of server.threads and server.queues by numbers. Numbers of the
// hosts file replace those of the experiment.
func (r *reader) completeCounts() {
	s := &r.e.Server
	if r.on != nil {
		set(&s.Threads, r.on.SUT.Threads)
		set(&s.Queues, r.on.SUT.Queues)
		set(&s.Pollers, r.on.SUT.Pollers)
		if r.on.SUT.Threads > 0 {
			r.sameThreads(r.on.SUT.Threads)
		}
	}
	if s.Kind == KindRunning {
		s.Queues = cmp.Or(s.Queues, 1)
	}
	perCPUs := func(key string, to *int) {
		if *to != perCPU {
			return
		}
		if *to = len(r.serverCPUs()); *to == 0 {
			*to = 1
			if r.fine("server") {
				r.broken = append(r.broken, "server."+key)
				r.Failf("server."+key, "found cpus, but %s", r.cpusMissing(key))
			}
		}
	}
	perCPUs("threads", &s.Threads)
	each := s.Queues <= 0 // a word for the sum over all cards
	perCPUs("queues", &s.Queues)
	if s.Queues == 0 || s.Queues == perThread {
		s.Queues = s.Threads
	}
	if n := r.cardsOf(); each {
		s.Queues = (s.Queues + n - 1) / n
	}
	s.Pollers = cmp.Or(s.Pollers, s.Queues)
}

// serverCPUs returns the processors that the files give the server; nil: they do not say.
func (r *reader) serverCPUs() []int {
	if c := r.e.Placement.Server.CPUs; len(c) > 0 || r.e.Lab == nil {
		return c
	}
	return r.e.Lab.SUTCPUs
}

// cpusMissing says which key would tell the server's processors, for a message about server.KEY.
func (r *reader) cpusMissing(key string) string {
	if r.on != nil {
		return "the hosts file's sut has no cpus; want sut.cpus or sut." + key + " there"
	}
	return fmt.Sprintf("the lab's server has no processors of its own; want sizes.lab.%s, placement.server.cpus or "+
		"lab.sut-cpus", key)
}

// sameThreads gives the variants that have a number of threads the number n.
func (r *reader) sameThreads(n int) {
	for i := range r.e.Variants {
		if x := r.e.Variants[i].Server; x != nil && x.Threads > 0 {
			x.Threads = n
		}
	}
}

// napiIDs returns the number after memcached's -N, of a variant's arguments; 0: there is none.
func (r *reader) napiIDs(v *Variant) int {
	if r.e.Server.Kind != KindMemcached || v.Server == nil {
		return 0
	}
	values := samples(commandNames)
	maps.Copy(values, r.e.Known(v))
	all := v.Server.Arguments
	for i, a := range all {
		text, _ := Expand(a, values)
		number, ok := strings.CutPrefix(text, "--napi-ids=")
		if !ok {
			number, ok = strings.CutPrefix(text, "-N")
		}
		if (text == "-N" || text == "--napi-ids") && i+1 < len(all) {
			number, _ = Expand(all[i+1], values)
		}
		if n, err := strconv.Atoi(number); ok && err == nil {
			return n
		}
	}
	return 0
}

// checkNAPIIDs refuses a memcached that has another number of threads than of NAPI IDs. Each ID belongs
// to one thread: with fewer IDs the other threads stay idle, and memcached does not start with more
// (doc/napi_ids.txt).
func (r *reader) checkNAPIIDs(path string, v *Variant) {
	if n, threads := r.napiIDs(v), r.e.ThreadsOf(v); n > 0 && n != threads {
		r.Failf(path+".server.arguments", "found -N %d for %d threads, want -N $threads: a thread for each NAPI ID",
			n, threads)
	}
}

// checkLaneCounts refuses a lane of the server that contradicts its threads, its processors or the
// card.
func (r *reader) checkLaneCounts(path string, v *Variant) {
	if !r.fine("server", "workload.protocol", "hosts", "lab", "placement", path) {
		return
	}
	in, err := r.e.IntentOf(v, 0)
	if err != nil { // checkLanes has reported it
		return
	}
	if l := r.e.Lab; l != nil && l.Queues > 0 {
		sum := max(1, in.Default.Queues)
		for _, l := range in.Lanes {
			sum += l.Queues
		}
		if sum > l.Queues {
			r.Failf(path+".lanes", "found %d queues, the default lane's among them, want at most lab.queues: %d", sum,
				l.Queues)
		}
	}
	l := ServerLane(in, r.e.Server.Port)
	if l == nil || !slices.ContainsFunc(l.Members, func(m intent.Member) bool { return m.Aligned }) {
		return
	}
	ids, threads := l.Queues*r.cardsOf(), r.e.ThreadsOf(v)
	if n := r.napiIDs(v); n > 0 && n != ids {
		r.Failf(path+".lanes", "found lane %s with %d queues in all, which are as many NAPI IDs, for -N %d; want as "+
			"many queues as threads", l.Name, ids, n)
	}
	if cpus := len(r.serverCPUs()); l.Poller.Kind == intent.PollerApplication && cpus > 0 && threads > cpus {
		r.Failf(path+".lanes", "found %d threads that poll, one for each queue, on %d processors; want at most one "+
			"thread for each", threads, cpus)
	}
}

// cardsOf returns the number of the SUT's cards. Each has the queues of a lanes text.
func (r *reader) cardsOf() int {
	if r.on == nil {
		return 1
	}
	return len(r.on.SUT.Ports())
}
