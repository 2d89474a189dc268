// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/niclane/niclane/bench/power"
	"github.com/niclane/niclane/bench/result"
)

// A serversView is the template's input for the page over servers.
type serversView struct {
	*result.Servers
	CSS            template.CSS
	Title, Niclane string
	Headline, Lead []string
	Keys           []key // a key for each load
	Works          []string
	Sections       []serversSection
	Rows           []serversRow
	Facts          []serverFact
}

// A serversSection has the pictures of one work on servers with the same number of sockets.
type serversSection struct {
	Title  string
	Rates  []bars
	Watts  []bars
	Covers string
	// NoWatts says why there is no bar of Gbit/s per W.
	NoWatts string
}

// A serversRow is a row of the table: a server and a load, with a cell for each work.
type serversRow struct {
	Server, Load string
	Cells        []serverCell
}

type serverCell struct{ Name, Rate, Share, PerWatt, Ends, Missing string }

type serverFact struct{ Name, Sockets, CPU, Memory, Link, Cards, Kernel string }

// WriteServers writes the page over servers. version is that of niclane.
func WriteServers(w io.Writer, s *result.Servers, version string) error {
	v := &serversView{Servers: s, CSS: CSS(), Title: "Servers, by throughput and power", Niclane: version,
		Lead: []string{"Gbit/s: what the SUT's device sent, with headers, by its counters; Gbit/s per W: this " +
			"divided by the power of the same windows",
			"Loads of closed loops are connections for each client", "Bars of one picture have one scale"}}
	var loads []string
	for _, r := range s.Runs {
		if !slices.Contains(loads, r.Load) {
			loads = append(loads, r.Load)
		}
		if !slices.Contains(v.Works, r.Work) {
			v.Works = append(v.Works, r.Work)
		}
	}
	classes := slices.Concat(laned, noisy, spare[:1])
	for i, l := range loads {
		v.Keys = append(v.Keys, key{Name: l, Class: classes[i%len(classes)], shape: i})
	}
	for _, work := range v.Works {
		v.Headline = append(v.Headline, v.best(work)...)
		for _, sockets := range []int{1, 2, 4, 8, 0} {
			v.Sections = append(v.Sections, v.sections(work, sockets)...)
		}
	}
	v.Rows, v.Facts = v.rows(), v.facts()
	t, err := Head()
	if err == nil {
		t, err = t.New("servers.html").Parse(asset("servers.html"))
	}
	if err != nil {
		return fmt.Errorf("page: %w", err)
	}
	return t.Execute(w, v)
}

// best returns a sentence about the highest throughput and the highest throughput per watt of a work.
func (v *serversView) best(work string) []string {
	var rate, per *result.ServerRun
	covers := map[string]bool{}
	for i := range v.Runs {
		r := &v.Runs[i]
		if r.Work != work {
			continue
		}
		if r.Rate != nil && (rate == nil || *r.Rate > *rate.Rate) {
			rate = r
		}
		if r.RatePerWatt != nil {
			covers[r.Covers] = true
			if per == nil || r.RatePerWatt.Value > per.RatePerWatt.Value {
				per = r
			}
		}
	}
	if rate == nil {
		return nil
	}
	text := fmt.Sprintf("%s: at most %s Gbit/s, by %s", work, number(*rate.Rate), rate.Server)
	if per != nil && len(covers) == 1 { // power of different parts of servers is not comparable
		text += fmt.Sprintf(", and %s Gbit/s per W, by %s", number(per.RatePerWatt.Value), per.Server)
	}
	return []string{text + "."}
}

// socketsText names a number of sockets.
func socketsText(n int) string {
	switch n {
	case 0:
		return "number of sockets not known"
	case 1:
		return "one socket"
	case 2:
		return "two sockets"
	}
	return fmt.Sprintf("%d sockets", n)
}

// sections returns the pictures of a work on servers with a number of sockets: one for each part of
// the server that power covers.
func (v *serversView) sections(work string, sockets int) (out []serversSection) {
	var runs []result.ServerRun
	rates, covers := 0.0, []string{}
	for _, r := range v.Runs {
		if r.Work != work || v.Servers.Facts(r.Server).Sockets != sockets {
			continue
		}
		runs = append(runs, r)
		if r.Rate != nil {
			rates = max(rates, *r.Rate)
		}
		if r.RatePerWatt != nil && !slices.Contains(covers, r.Covers) {
			covers = append(covers, r.Covers)
		}
	}
	if len(runs) == 0 {
		return nil
	}
	s := serversSection{Title: work + ", " + socketsText(sockets)}
	s.Rates = v.bars(runs, rates, func(r result.ServerRun) (float64, string, string) {
		if r.Rate == nil {
			return 0, "", ""
		}
		detail := ""
		if share := v.Share(r); share > 0 {
			detail = tickShare(share) + " of the link"
		}
		return *r.Rate, number(*r.Rate), detail
	})
	if len(covers) == 0 {
		s.NoWatts = runs[0].Missing
		return []serversSection{s}
	}
	for _, c := range covers {
		top := 0.0
		for _, r := range runs {
			if r.RatePerWatt != nil && r.Covers == c {
				top = max(top, r.RatePerWatt.Value)
			}
		}
		s.Covers = c
		s.Watts = v.bars(runs, top, func(r result.ServerRun) (float64, string, string) {
			if r.RatePerWatt == nil || r.Covers != c {
				return 0, "", ""
			}
			i := *r.RatePerWatt
			return i.Value, number(i.Value), endsText(i)
		})
		out = append(out, s)
		s = serversSection{Title: s.Title}
	}
	return out
}

// bars returns a group of bars for each server. value returns a run's value, its text and details; a
// value of 0 has no bar.
func (v *serversView) bars(runs []result.ServerRun, top float64,
	value func(result.ServerRun) (value float64, text, detail string)) (out []bars) {
	for _, r := range runs {
		x, text, detail := value(r)
		if x == 0 {
			continue
		}
		i := slices.IndexFunc(out, func(b bars) bool { return b.Name == r.Server })
		if i < 0 {
			i = len(out)
			out = append(out, bars{Name: r.Server})
		}
		k := keyOf(v.Keys, r.Load)
		// Labels of one width, so that all bars begin at one place.
		k.Name = strings.TrimSuffix(k.Name, result.ForEachClient)
		if variants := v.variantsOf(r); len(variants) > 1 {
			detail = strings.TrimSuffix(r.Variant+"; "+detail, "; ")
		}
		out[i].Bars = append(out[i].Bars, hbar{Key: k, Text: text, Detail: detail, Percent: percentOf(x, top),
			Mark: -1})
	}
	return out
}

// endsText renders the ends of an interval; "" if they look like the value.
func endsText(i power.Interval) string {
	if number(i.Low) == number(i.Value) && number(i.High) == number(i.Value) {
		return ""
	}
	return number(i.Low) + " to " + number(i.High)
}

// variantsOf returns the variants of a run's server and work.
func (v *serversView) variantsOf(r result.ServerRun) (out []string) {
	for _, o := range v.Runs {
		if o.Server == r.Server && o.Work == r.Work && !slices.Contains(out, o.Variant) {
			out = append(out, o.Variant)
		}
	}
	return out
}

// rows returns the table: a row for each server, load and variant, with cells for each work.
func (v *serversView) rows() (out []serversRow) {
	for _, r := range v.Runs {
		load := r.Load
		if len(v.variantsOf(r)) > 1 {
			load += ", " + r.Variant
		}
		i := slices.IndexFunc(out, func(o serversRow) bool { return o.Server == r.Server && o.Load == load })
		if i < 0 {
			i = len(out)
			out = append(out, serversRow{Server: r.Server, Load: load, Cells: make([]serverCell, len(v.Works))})
		}
		c := serverCell{Name: r.Work, Missing: r.Missing}
		if r.Rate != nil {
			c.Rate = number(*r.Rate)
		}
		if share := v.Share(r); share > 0 {
			c.Share = tickShare(share) + " of the link"
		}
		if p := r.RatePerWatt; p != nil {
			c.PerWatt, c.Ends = number(p.Value), endsText(*p)
		}
		out[i].Cells[slices.Index(v.Works, r.Work)] = c
	}
	return out
}

// Sources returns where the values are from, each source once.
func (v *serversView) Sources() (out []string) {
	for _, r := range v.Runs {
		if !slices.Contains(out, r.Source) {
			out = append(out, r.Source)
		}
	}
	return out
}

func (v *serversView) facts() (out []serverFact) {
	for _, f := range v.Servers.Servers {
		x := serverFact{Name: f.Name, Sockets: socketsText(f.Sockets), CPU: f.CPU, Memory: "-", Link: "-",
			Kernel: f.Kernel, Cards: strings.Join(f.Cards, ", ")}
		if f.CPUs > 0 {
			x.CPU += fmt.Sprintf(", %d logical processors", f.CPUs)
		}
		if f.Memory > 0 {
			x.Memory = result.BytesText(float64(f.Memory))
		}
		if f.Link > 0 {
			x.Link = number(f.Link) + " Gbit/s"
		}
		out = append(out, x)
	}
	return out
}
