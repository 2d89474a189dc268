// SPDX-License-Identifier: Apache-2.0

package refresh

import (
	"fmt"
	"strings"

	"github.com/niclane/niclane/bench/power"
)

// PaperSource says where the paper's numbers come from.
const PaperSource = `Table 2 of "Varnish Enterprise on Intel Xeon 6": throughput at the server by dstat, ` +
	`power at the inlets by a Raritan PDU, one run each`

// A row is a row of Table 2: Gbit/s, and Gbit/s per W, both for live-linear and for VoD. The
// numbers have two decimals, as in the paper.
type row struct {
	server      string
	units       int // height of the chassis in rack units
	connections int // number of connections per client
	live, vod   [2]float64
}

var table2 = []row{
	{"1x6252N", 1, 48, [2]float64{154.18, 0.54}, [2]float64{21.96, 0.11}},
	{"1x6252N", 1, 100, [2]float64{154.00, 0.53}, [2]float64{21.91, 0.11}},
	{"1x6252N", 1, 800, [2]float64{154.02, 0.52}, [2]float64{22.04, 0.12}},
	{"2x6252N", 1, 48, [2]float64{195.64, 0.46}, [2]float64{182.91, 0.40}},
	{"2x6252N", 1, 100, [2]float64{195.69, 0.46}, [2]float64{189.65, 0.41}},
	{"2x6252N", 1, 800, [2]float64{191.87, 0.44}, [2]float64{191.27, 0.41}},
	{"1x6710E", 2, 48, [2]float64{549.84, 1.34}, [2]float64{416.91, 0.86}},
	{"1x6710E", 2, 100, [2]float64{543.42, 1.36}, [2]float64{418.93, 0.86}},
	{"1x6710E", 2, 800, [2]float64{518.13, 1.29}, [2]float64{409.44, 0.85}},
	{"1x6766E", 2, 48, [2]float64{780.24, 1.57}, [2]float64{518.60, 0.93}},
	{"1x6766E", 2, 100, [2]float64{765.76, 1.53}, [2]float64{519.02, 0.93}},
	{"1x6766E", 2, 800, [2]float64{725.20, 1.48}, [2]float64{522.58, 0.93}},
	{"1x6780E", 2, 48, [2]float64{786.47, 1.30}, [2]float64{551.09, 0.89}},
	{"1x6780E", 2, 100, [2]float64{783.40, 1.29}, [2]float64{550.07, 0.88}},
	{"1x6780E", 2, 800, [2]float64{761.64, 1.28}, [2]float64{555.27, 0.89}},
	{"2x6710E", 2, 48, [2]float64{969.62, 1.28}, [2]float64{622.64, 0.72}},
	{"2x6710E", 2, 100, [2]float64{952.85, 1.26}, [2]float64{622.62, 0.72}},
	{"2x6710E", 2, 800, [2]float64{909.73, 1.19}, [2]float64{625.49, 0.72}},
	{"2x6766E", 2, 48, [2]float64{1361.40, 1.53}, [2]float64{775.13, 0.78}},
	{"2x6766E", 2, 100, [2]float64{1317.64, 1.49}, [2]float64{774.64, 0.79}},
	{"2x6766E", 2, 800, [2]float64{1163.91, 1.31}, [2]float64{778.36, 0.79}},
	{"2x6780E", 2, 48, [2]float64{1553.62, 1.42}, [2]float64{838.93, 0.78}},
	{"2x6780E", 2, 100, [2]float64{1556.67, 1.41}, [2]float64{835.53, 0.78}},
	{"2x6780E", 2, 800, [2]float64{1380.82, 1.33}, [2]float64{841.75, 0.78}},
}

// Paper returns all rows of the paper's table, with the names that FromPaper accepts. The
// live-linear rows come first.
func Paper() []Server {
	var out []Server
	for _, vod := range []bool{false, true} {
		for _, r := range table2 {
			out = append(out, r.of(vod))
		}
	}
	return out
}

// FromPaper returns a row by its name, such as "2x6252N/live/48". The parts of a name are the
// processors, live or vod, and the number of connections per client.
func FromPaper(name string) (Server, error) {
	for _, s := range Paper() {
		if s.Name == name {
			return s, nil
		}
	}
	var servers []string
	for i, r := range table2 {
		if i == 0 || r.server != table2[i-1].server {
			servers = append(servers, r.server)
		}
	}
	return Server{}, fmt.Errorf("the paper has no %q: want SERVER/WORKLOAD/CONNECTIONS, of %s; live or vod; 48, 100 "+
		"or 800", name, strings.Join(servers, ", "))
}

func (r row) of(vod bool) Server {
	v, workload := r.live, "live"
	if vod {
		v, workload = r.vod, "vod"
	}
	return Server{
		Name: fmt.Sprintf("%s/%s/%d", r.server, workload, r.connections), Source: PaperSource,
		Rate: rounded(v[0]), RatePerWatt: rounded(v[1]), Units: r.units,
	}
}

// rounded returns the interval of values that are printed as v with two decimals.
func rounded(v float64) power.Interval {
	const half = 0.005
	return power.Interval{Value: v, Low: v - half, High: v + half}
}
