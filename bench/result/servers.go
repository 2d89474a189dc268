// SPDX-License-Identifier: Apache-2.0

package result

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/niclane/niclane/bench/power"
)

// Servers compares servers by their throughput and their power, over the results of several runs.
type Servers struct {
	Servers []ServerFacts `json:"servers"`
	Runs    []ServerRun   `json:"runs"`
	// Notes are reasons why figures are not comparable, or not what they seem.
	Notes []string `json:"notes,omitempty"`
}

// ServerFacts describe a server.
type ServerFacts struct {
	Name    string `json:"name"`
	Sockets int    `json:"sockets,omitempty"` // 0: not known
	CPU     string `json:"cpu,omitempty"`
	CPUs    int    `json:"cpus,omitempty"` // logical processors; 0: not known
	Memory  int64  `json:"memoryBytes,omitempty"`
	Kernel  string `json:"kernel,omitempty"`
	// Cards are those of the SUT, a line each.
	Cards []string `json:"cards,omitempty"`
	// Link is the rate of the link in Gbit/s; 0: not known.
	Link float64 `json:"linkGbitPerSecond,omitempty"`
}

// A ServerRun is what a server did at one load point.
type ServerRun struct {
	Server  string `json:"server"`
	Work    string `json:"work"` // title of the experiment
	Load    string `json:"load"` // "48 for each client", or the rate of an open loop
	Variant string `json:"variant,omitempty"`
	Source  string `json:"source"` // the file, or the paper
	// Rate is what the SUT's device sent, in Gbit/s with headers; nil: not counted.
	Rate *float64 `json:"gbitPerSecond,omitempty"`
	// RatePerWatt is Rate divided by the power of the same windows; nil: not measured. Covers says which
	// power: values that cover different parts of a server are not comparable.
	RatePerWatt *power.Interval `json:"gbitPerSecondPerWatt,omitempty"`
	Covers      string          `json:"covers,omitempty"`
	Missing     string          `json:"missing,omitempty"` // why Rate or RatePerWatt is nil
	// WholeHost says that a PDU or a BMC measured the power, of the whole host.
	WholeHost bool `json:"wholeHost,omitempty"`
}

// Add adds a result. name is the server's; "" takes its sockets and processors. variant is the one to
// take; "" takes the first without noise and lanes, or else the base. Source names the file in
// messages. It refuses runs in virtual time, unknown variants, and a load of a server that is already
// there.
func (s *Servers) Add(name string, r *Result, variant, source string) error {
	if r.Virtual {
		return fmt.Errorf("%s: a run in virtual time has neither a server's throughput nor power; want one in real "+
			"time", source)
	}
	if variant == "" {
		variant = r.plainVariant()
	}
	if !slices.ContainsFunc(r.Variants, func(v Variant) bool { return v.Name == variant }) {
		var names []string
		for _, v := range r.Variants {
			names = append(names, v.Name)
		}
		return fmt.Errorf("%s: no variant %q, want one of %s", source, variant, strings.Join(names, ", "))
	}
	facts := r.serverFacts(name)
	i := slices.IndexFunc(s.Servers, func(f ServerFacts) bool { return f.Name == facts.Name })
	if i < 0 {
		s.Servers = append(s.Servers, facts)
	} else if s.Servers[i].CPU != facts.CPU || s.Servers[i].Sockets != facts.Sockets {
		return fmt.Errorf("%s: server %s has other processors (%s) than in the results before (%s); want other names, "+
			"as in NAME=RESULT", source, facts.Name, facts.CPU, s.Servers[i].CPU)
	}
	for i, p := range Summarize(r).Points {
		for _, v := range p.Variants {
			if v.Name != variant {
				continue
			}
			run := Delivered(v)
			run.Server, run.Work, run.Load, run.Source = facts.Name, r.Title, r.loadOfEach(i), source
			if slices.ContainsFunc(s.Runs, func(o ServerRun) bool { return o.key() == run.key() }) {
				return fmt.Errorf("%s: %s, %q, %s is there already; want other names, as in NAME=RESULT", source,
					run.Server, run.Work, run.Load)
			}
			s.Runs = append(s.Runs, run)
		}
	}
	if r.Experiment.Lab != nil {
		s.Notes = append(s.Notes, source+": a lab on one machine, whose link and processors are no server's")
	}
	if slices.ContainsFunc(r.Experiment.Sized, func(s string) bool { return strings.HasSuffix(s, "quick") }) ||
		r.Experiment.Trial() {
		s.Notes = append(s.Notes, source+": a short form, too short for a claim")
	}
	if r.Partial != nil {
		s.Notes = append(s.Notes, source+": partial: "+r.Partial.Reason)
	}
	return nil
}

// key identifies a run. Variants differ in it, so that one file can be there with two of them.
func (r ServerRun) key() [4]string { return [4]string{r.Server, r.Work, r.Load, r.Variant} }

// plainVariant returns the first variant without noise and lanes, or else the base.
func (r *Result) plainVariant() string {
	for _, v := range r.Experiment.Variants {
		if !v.Noise && v.Lanes == "" && v.LanesFile == "" && v.LanePolicy == "" {
			return v.Name
		}
	}
	return r.Experiment.Base
}

// Clients returns the number of hosts with generators; in the lab it is 1.
func (r *Result) Clients() int {
	if h := r.Experiment.Hosts; h != nil {
		return max(1, len(h.Clients))
	}
	return 1
}

// ForEachClient is the end of the load of a closed loop, as in "48 for each client".
const ForEachClient = " for each client"

// loadOfEach returns the name of a load point, of a closed loop with the connections of each client.
func (r *Result) loadOfEach(point int) string {
	p := r.Points[point]
	if p.Rate > 0 {
		return p.Load()
	}
	return numberText(float64(p.Connections)/float64(r.Clients())) + ForEachClient
}

func (r *Result) serverFacts(name string) ServerFacts {
	e := r.Environment
	cpu := strings.NewReplacer("(R)", "", "(TM)", "", " CPU", "").Replace(e.CPUModel)
	cpu, _, _ = strings.Cut(cpu, " @ ")
	cpu = cmp.Or(cpu, "unknown processor")
	f := ServerFacts{Name: name, Sockets: e.SocketCount(), CPU: cpu, CPUs: e.CPUs, Memory: e.Memory,
		Link: float64(e.Network.LinkRate) / 1e9}
	f.Kernel, _, _ = strings.Cut(e.Kernel, " ")
	if f.Name == "" {
		f.Name = cpu
		if e.SocketCount() > 0 {
			f.Name = fmt.Sprintf("%dx %s", e.SocketCount(), cpu)
		}
	}
	for _, c := range e.Cards {
		if c.Host == "sut" {
			f.Cards = append(f.Cards, strings.TrimSpace(c.Driver+" "+BitsText(float64(c.Speed))))
		}
	}
	return f
}

// Delivered returns what the SUT's device sent in a variant at a load point, and the power of the same
// windows. Only Variant, Rate, RatePerWatt, Covers, WholeHost and Missing are set.
func Delivered(v VariantSummary) ServerRun {
	run := ServerRun{Variant: v.Name, Missing: "power was not measured"}
	if v.Traffic == nil || v.Traffic.Sent == 0 {
		run.Missing = "the device's bytes were not counted"
		return run
	}
	sent := v.Traffic.Sent / 1e9
	run.Rate = &sent
	for _, w := range v.Power {
		if w.Derived == nil || w.Derived.RatePerWatt == nil {
			run.Missing = cmp.Or(w.Missing, run.Missing)
			continue
		}
		// The power's summary counts both directions of the same device in the same windows.
		k, both := v.Traffic.Sent/v.Traffic.Both, *w.Derived.RatePerWatt
		run.RatePerWatt = &power.Interval{Value: both.Value * k, Low: both.Low * k, High: both.High * k}
		run.Covers, run.Missing = cmp.Or(w.Provenance.Covers, w.Provenance.Source), ""
		run.WholeHost = slices.Contains([]string{power.IPMI, power.Redfish, power.Raritan, power.SNMP},
			w.Provenance.Source)
		break
	}
	return run
}

// Finish adds the notes about all runs together. Without runs it returns an error.
func (s *Servers) Finish() error {
	if len(s.Runs) == 0 {
		return errors.New("no load point was measured")
	}
	var covers []string
	for _, r := range s.Runs {
		if r.Covers != "" && !slices.Contains(covers, r.Covers) {
			covers = append(covers, r.Covers)
		}
	}
	if len(covers) > 1 {
		s.Notes = append(s.Notes, "power covers different parts of the servers, so that Gbit/s per W can be compared "+
			"only where it covers the same: "+strings.Join(covers, "; "))
	}
	return nil
}

// Facts returns the facts of a server.
func (s *Servers) Facts(name string) ServerFacts {
	for _, f := range s.Servers {
		if f.Name == name {
			return f
		}
	}
	return ServerFacts{Name: name}
}

// Share returns the rate of a run as a share of the link's rate; 0: not known.
func (s *Servers) Share(r ServerRun) float64 {
	if link := s.Facts(r.Server).Link; r.Rate != nil && link > 0 {
		return *r.Rate / link
	}
	return 0
}

// six renders a number with six significant digits.
func six(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// WriteServers writes servers as text, CSV or Markdown: a line for each run.
func WriteServers(out io.Writer, s *Servers, format string) error {
	head := []string{"server", "sockets", "work", "load", "variant", "Gbit/s", "of the link", "Gbit/s per W", "power"}
	rows := make([][]string, len(s.Runs))
	for i, r := range s.Runs {
		sockets, rate, share, per, covers := "-", "-", "-", "-", cmp.Or(r.Covers, r.Missing)
		if n := s.Facts(r.Server).Sockets; n > 0 {
			sockets = strconv.Itoa(n)
		}
		if r.Rate != nil {
			rate = fmt.Sprintf("%.2f", *r.Rate)
			if *r.Rate < 10 {
				rate = fmt.Sprintf("%.3g", *r.Rate)
			}
		}
		if x := s.Share(r); x > 0 {
			share = fmt.Sprintf("%.1f %%", 100*x)
		}
		if r.RatePerWatt != nil {
			per = fmt.Sprintf("%.2f (%.2f to %.2f)", r.RatePerWatt.Value, r.RatePerWatt.Low, r.RatePerWatt.High)
		}
		rows[i] = []string{r.Server, sockets, r.Work, r.Load, r.Variant, rate, share, per, covers}
	}
	switch format {
	case CSV:
		w := csv.NewWriter(out)
		_ = w.Write([]string{"server", "sockets", "work", "load", "variant", "gbit_per_second", "link_gbit_per_second",
			"gbit_per_second_per_watt", "low", "high", "covers", "missing", "source"})
		for i, r := range s.Runs {
			line := []string{r.Server, strings.TrimPrefix(rows[i][1], "-"), r.Work, r.Load, r.Variant, "", "", "", "",
				"", r.Covers, r.Missing, r.Source}
			if r.Rate != nil {
				line[5] = six(*r.Rate)
			}
			if link := s.Facts(r.Server).Link; link > 0 {
				line[6] = six(link)
			}
			if p := r.RatePerWatt; p != nil {
				line[7], line[8], line[9] = six(p.Value), six(p.Low), six(p.High)
			}
			_ = w.Write(line) // w.Error reports the error
		}
		w.Flush()
		return w.Error()
	case Markdown:
		var b strings.Builder
		fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
		for _, row := range rows {
			for i := range row {
				row[i] = cell(row[i])
			}
			fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		}
		bullets(&b, s.Notes)
		_, err := io.WriteString(out, b.String())
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for _, row := range append([][]string{head}, rows...) {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	for _, n := range s.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
	return w.Flush()
}
