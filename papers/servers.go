// SPDX-License-Identifier: Apache-2.0

package papers

import (
	"strings"

	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/papers/refresh"
)

// Cards of the Varnish paper.
const two, four = "2x 2x 200 Gbit/s", "4x 2x 200 Gbit/s"

// varnish lists the servers of the Varnish paper, in the order of its Table 1.
var varnish = []result.ServerFacts{
	{Name: "1x6252N", Sockets: 1, CPU: "Xeon 6252N", Memory: 192 << 30, Link: 200, Cards: []string{"2x 100 Gbit/s"}},
	{Name: "2x6252N", Sockets: 2, CPU: "Xeon 6252N", Memory: 384 << 30, Link: 200, Cards: []string{"2x 100 Gbit/s"}},
	{Name: "1x6710E", Sockets: 1, CPU: "Xeon 6710E", Memory: 512 << 30, Link: 800, Cards: []string{two}},
	{Name: "1x6766E", Sockets: 1, CPU: "Xeon 6766E", Memory: 512 << 30, Link: 800, Cards: []string{two}},
	{Name: "1x6780E", Sockets: 1, CPU: "Xeon 6780E", Memory: 512 << 30, Link: 800, Cards: []string{two}},
	{Name: "2x6710E", Sockets: 2, CPU: "Xeon 6710E", Memory: 512 << 30, Link: 1600, Cards: []string{four}},
	{Name: "2x6766E", Sockets: 2, CPU: "Xeon 6766E", Memory: 512 << 30, Link: 1600, Cards: []string{four}},
	{Name: "2x6780E", Sockets: 2, CPU: "Xeon 6780E", Memory: 512 << 30, Link: 1600, Cards: []string{four}},
}

// AddVarnish adds the servers of the Varnish paper with all rows of its Table 2. Their names begin with
// prefix. The paper has one run of each.
func AddVarnish(s *result.Servers, prefix string) {
	for _, f := range varnish {
		f.Name = prefix + f.Name
		s.Servers = append(s.Servers, f)
	}
	for _, row := range refresh.Paper() {
		part := strings.Split(row.Name, "/") // server, live or vod, connections for each client
		rate, per := row.Rate.Value, row.RatePerWatt
		s.Runs = append(s.Runs, result.ServerRun{Server: prefix + part[0],
			Work: map[string]string{"live": "The paper's live", "vod": "The paper's VoD"}[part[1]],
			Load: part[2] + result.ForEachClient, Source: row.Source, Rate: &rate, RatePerWatt: &per,
			Covers: "the whole server, at its inlets", WholeHost: true})
	}
	s.Notes = append(s.Notes,
		"the paper's values are single runs; it does not say which direction dstat's throughput is of")
}
