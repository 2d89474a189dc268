// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/bits"
	"slices"
	"sort"
)

// A Series is the samples of one repeat, as one histogram for each window of time. All windows have
// the same length. Samples of one stall are in one window or in neighbouring windows. So this
// package can estimate how many independent samples there are (see Interval).
//
// A window takes 6 bytes per occupied bucket. A repeat of 30 s in windows of 100 ms typically takes
// 1 to 2 MB.
type Series struct {
	window  int64
	ends    []int // where each window ends in cells and counts
	cells   []uint16
	counts  []uint32
	n       int64
	clamped int64
}

// DefaultWindow is a good length of a window, in ns. It is short enough for many windows in a
// repeat of seconds, and long enough for a typical stall.
const DefaultWindow = 100e6

// OneWindow returns a series with a single window, whose samples are those of h.
func OneWindow(h *Histogram) *Series {
	s := &Series{}
	if h.Count() > 0 {
		s.clamped = h.clamped
		for b, n := range h.occupied {
			s.add(b, n)
		}
	}
	s.ends = append(s.ends, len(s.cells))
	return s
}

func (s *Series) add(bucket int, n int64) {
	s.n += n
	for n > 0 {
		c := min(n, math.MaxUint32)
		s.cells, s.counts = append(s.cells, uint16(bucket)), append(s.counts, uint32(c))
		n -= c
	}
}

// Window returns the length of a window in ns; 0 if the series has a single window of unknown
// length.
func (s *Series) Window() int64 { return s.window }

// Windows returns the number of windows.
func (s *Series) Windows() int { return len(s.ends) }

// Count returns the number of samples.
func (s *Series) Count() int64 { return s.n }

// bounds returns where window w begins and ends in cells.
func (s *Series) bounds(w int) (from, to int) {
	if w > 0 {
		from = s.ends[w-1]
	}
	return from, s.ends[w]
}

// beyond returns how many of the n samples of a window are in buckets above b. It adds up the
// buckets above b or the others, whichever are fewer.
func (s *Series) beyond(window, b int, n int64) int64 {
	from, to := s.bounds(window)
	cells, counts := s.cells[from:to], s.counts[from:to]
	at := sort.Search(len(cells), func(i int) bool { return int(cells[i]) > b })
	if at < len(counts)/2 {
		return n - total(counts[:at])
	}
	return total(counts[at:])
}

func total(counts []uint32) (n int64) {
	for _, c := range counts {
		n += int64(c)
	}
	return n
}

// Histogram returns all samples together.
func (s *Series) Histogram() *Histogram {
	h := NewHistogram()
	for i, b := range s.cells {
		h.add(int(b), int64(s.counts[i]))
	}
	h.clamped = s.clamped
	return h
}

// HistogramOf returns the samples of one window. The first window is 0.
func (s *Series) HistogramOf(window int) *Histogram {
	h := &Histogram{}
	for b, n := range s.occupied(s.bounds(window)) {
		h.cells, h.counts = append(h.cells, uint16(b)), append(h.counts, n)
		h.n += n
	}
	return h
}

// MergeSeries adds up, window by window, what several generators measured at the same time. nil
// adds nothing. All series must have the same length of window. The caller must make sure that
// their first windows began at the same time.
func MergeSeries(ss ...*Series) (*Series, error) {
	ss = slices.DeleteFunc(slices.Clone(ss), func(s *Series) bool { return s == nil })
	sum := &Series{}
	windows := 0
	for _, s := range ss {
		if s.window != ss[0].window {
			return nil, fmt.Errorf("merge series: windows of %d and %d ns, want equal ones", ss[0].window, s.window)
		}
		windows = max(windows, s.Windows())
		sum.window = s.window
		sum.clamped += s.clamped
	}
	var at []int
	for w := range windows {
		at = at[:0]
		count := make(map[int]int64)
		for _, s := range ss {
			if w >= s.Windows() {
				continue
			}
			for from, to := s.bounds(w); from < to; from++ {
				b := int(s.cells[from])
				if count[b] == 0 {
					at = append(at, b)
				}
				count[b] += int64(s.counts[from])
			}
		}
		slices.Sort(at)
		for _, b := range at {
			sum.add(b, count[b])
		}
		sum.ends = append(sum.ends, len(sum.cells))
	}
	return sum, nil
}

// A Recorder records values into a Series. It is not safe for concurrent use.
type Recorder struct {
	s      *Series
	counts []uint32               // counts of the open window, by bucket
	seen   [buckets/64 + 1]uint64 // one bit for each occupied bucket of the open window
}

// NewRecorder returns a recorder whose windows have the given length in ns. It allocates memory for
// the given number of windows of typical size.
func NewRecorder(window int64, windows int) *Recorder {
	const typical = 1024 // number of occupied buckets
	return &Recorder{
		s: &Series{
			window: window,
			ends:   make([]int, 0, windows),
			cells:  make([]uint16, 0, windows*typical),
			counts: make([]uint32, 0, windows*typical),
		},
		counts: make([]uint32, buckets),
	}
}

// Record adds a value to the open window, like Histogram.Record. It never allocates and takes a few
// ns.
func (r *Recorder) Record(v int64) {
	if v < 0 {
		v = 0
		r.s.clamped++
	} else if v > highest {
		v = highest
		r.s.clamped++
	}
	b := bucketOf(v)
	r.counts[b]++
	r.seen[b/64] |= 1 << (b % 64)
}

// Advance closes windows until the open window has the given number. The first window is 0. A stall
// of the caller leaves empty windows, which is right. If the number is not higher than that of the
// open window, Advance does nothing. It takes about 5 µs for a window of 2000 requests
// (BenchmarkAdvance), however different their latencies are.
func (r *Recorder) Advance(window int) {
	for len(r.s.ends) < window {
		for i, word := range r.seen {
			if word == 0 {
				continue
			}
			for ; word != 0; word &= word - 1 {
				b := i*64 + bits.TrailingZeros64(word)
				r.s.add(b, int64(r.counts[b]))
				r.counts[b] = 0
			}
			r.seen[i] = 0
		}
		r.s.ends = append(r.s.ends, len(r.s.cells))
	}
}

// Series closes the open window and returns the series. The recorder must not be used afterwards.
func (r *Recorder) Series() *Series {
	r.Advance(len(r.s.ends) + 1)
	return r.s
}

// seriesWire is the JSON form. Each window is a text in HDR's V2 compressed base64 form, as in a
// Histogram.
type seriesWire struct {
	Window  int64    `json:"windowNs"`
	Clamped int64    `json:"clamped,omitempty"`
	Count   int64    `json:"count"`
	HDR     []string `json:"hdr"` // "" for an empty window
}

// MarshalJSON writes every window in a form that every HdrHistogram library reads.
func (s *Series) MarshalJSON() ([]byte, error) {
	w := seriesWire{Window: s.window, Clamped: s.clamped, Count: s.n, HDR: make([]string, s.Windows())}
	writer := writers.Get().(*hdrWriter)
	defer writers.Put(writer)
	var text []byte
	for i := range w.HDR {
		from, to := s.bounds(i)
		if from == to {
			continue
		}
		var err error
		if text, err = writer.encode(text[:0], s.occupied(from, to)); err != nil {
			return nil, fmt.Errorf("encode series: %w", err)
		}
		w.HDR[i] = string(text)
	}
	return json.Marshal(w)
}

// occupied returns the buckets of cells from to to. A bucket with more than 2^32 samples has
// several cells.
func (s *Series) occupied(from, to int) iter.Seq2[int, int64] {
	return func(yield func(int, int64) bool) {
		for from < to {
			bucket, n := s.cells[from], int64(0)
			for ; from < to && s.cells[from] == bucket; from++ {
				n += int64(s.counts[from])
			}
			if !yield(int(bucket), n) {
				return
			}
		}
	}
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (s *Series) UnmarshalJSON(b []byte) error {
	var w seriesWire
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	if w.Window < 0 {
		return fmt.Errorf("series: windowNs %d, want at least 0", w.Window)
	}
	*s = Series{window: w.Window, clamped: w.Clamped}
	reader := readers.Get().(*hdrReader)
	defer readers.Put(reader)
	size := 0
	for _, text := range w.HDR {
		size += len(text)
	}
	// Estimate from measurements: a cell takes 1.2 to 1.6 characters.
	room := max(0, min(int64(size), w.Count))
	s.ends, s.cells, s.counts = make([]int, 0, len(w.HDR)), make([]uint16, 0, room), make([]uint32, 0, room)
	for i, text := range w.HDR {
		if text != "" {
			err := reader.decode([]byte(text), s.add)
			if errors.Is(err, errGeometry) {
				var h Histogram
				err = h.decode([]byte(text))
				for b, n := range h.occupied {
					s.add(b, n)
				}
				s.clamped += h.clamped
			}
			if err != nil {
				return fmt.Errorf("series: window %d: %w", i, err)
			}
		}
		s.ends = append(s.ends, len(s.cells))
	}
	if s.n != w.Count {
		return fmt.Errorf("series: count %d, but its windows hold %d", w.Count, s.n)
	}
	return nil
}
