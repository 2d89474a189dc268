// SPDX-License-Identifier: Apache-2.0

package power

// Provenance says what was read and how good it can be.
type Provenance struct {
	Source string `json:"source"` // of Config
	// Address of the source: a directory, HOST:PORT, URL, or device file.
	Address string `json:"address,omitempty"`
	// Protocol and its protection, such as "RMCP+, cipher suite 17".
	Protocol string `json:"protocol,omitempty"`
	// Device and Firmware as the source names itself.
	Device   string `json:"device,omitempty"`
	Firmware string `json:"firmware,omitempty"`
	// Covers is what the power supplies, and what it leaves out.
	Covers  string   `json:"covers,omitempty"`
	Sensors []Sensor `json:"sensors,omitempty"`
	// AccuracyPercent of a reading, 0 if nobody states one.
	AccuracyPercent float64 `json:"accuracyPercent,omitempty"`
	AccuracyFrom    From    `json:"accuracyFrom,omitempty"`
	// Interval between readings asked for, ns.
	Interval int64 `json:"intervalNs,omitempty"`
}

// Quantities of sensors.
const (
	Energy = "energy" // a counter
	Power  = "power"  // a gauge
)

// A Sensor is one of those added up.
type Sensor struct {
	Name string `json:"name"`
	// Path is the file, OID, URL with property, or command that is read.
	Path     string `json:"path"`
	Quantity string `json:"quantity"` // Energy or Power
	Unit     string `json:"unit"`     // of one count at the source, such as "uJ" or "0.1 W"
	// ResolutionW or ResolutionJ is the smallest difference that a reading can
	// show, or an upper bound of it.
	ResolutionW    float64 `json:"resolutionW,omitempty"`
	ResolutionJ    float64 `json:"resolutionJ,omitempty"`
	ResolutionFrom From    `json:"resolutionFrom"`
	// UpdateInterval is the time between changes of the reading, or an upper
	// bound of it, ns.
	UpdateInterval     int64 `json:"updateIntervalNs"`
	UpdateIntervalFrom From  `json:"updateIntervalFrom"`
	// Averages is whether a reading is the mean since the one before; if not,
	// or if nobody says so, what happens between updates goes unseen.
	Averages bool `json:"averages,omitempty"`
	// WrapJ is where an energy counter starts again, 0 if nowhere known.
	WrapJ float64 `json:"wrapJ,omitempty"`
}

// From says where a figure comes from.
type From string

// Where figures come from.
const (
	FromConfig   From = "config"   // a person wrote it into the experiment
	FromSource   From = "source"   // the sensor or its protocol says so
	FromReadings From = "readings" // seen in the readings themselves
	FromDefault  From = "default"  // assumed, on the safe side for sensors of this kind
)

// Interval is a value with its bounds.
type Interval struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// Uncertainty is what the half-width of the energy consists of, in J. All but
// SamplingJ are bounds; SamplingJ is the half-width of a 95 % interval.
type Uncertainty struct {
	// ResolutionJ: readings are rounded, by at most one resolution.
	ResolutionJ float64 `json:"resolutionJ"`
	// EdgesJ: a reading is as old as the update interval, takes time, and does
	// not fall on the window's ends.
	EdgesJ float64 `json:"edgesJ"`
	// SamplingJ: samples that are no averages miss what is between them.
	SamplingJ float64 `json:"samplingJ"`
	// GapsJ: readings that failed.
	GapsJ float64 `json:"gapsJ"`
	// AccuracyJ: the sensor's stated accuracy; 0 if nobody states one.
	AccuracyJ float64 `json:"accuracyJ"`
}

func (u Uncertainty) sum() float64 {
	return u.ResolutionJ + u.EdgesJ + u.SamplingJ + u.GapsJ + u.AccuracyJ
}

// Methods of an Estimate.
const (
	Counter = "difference of energy counters"
	Samples = "mean of power samples over time"
)

// An Estimate of the window's energy.
type Estimate struct {
	Method      string      `json:"method"` // Counter or Samples
	Energy      Interval    `json:"energyJ"`
	Power       Interval    `json:"powerW"` // mean over the window
	Uncertainty Uncertainty `json:"uncertainty"`
}

// Result of measuring over a window of time.
type Result struct {
	Provenance Provenance `json:"provenance"`
	// StartMono is CLOCK_MONOTONIC at the window's start, ns, and Duration its
	// length.
	StartMono int64 `json:"startMonoNs"`
	Duration  int64 `json:"durationNs"`

	// NotMeasured is why there is no Estimate; "" if there is one.
	NotMeasured string `json:"notMeasured,omitempty"`
	// Needed is a window that would do, ns, where the window's length is the
	// reason for NotMeasured or a warning.
	Needed int64 `json:"neededDurationNs,omitempty"`

	*Estimate
	// CrossCheck is what the source's other sensors say, where it has both
	// counters and gauges. The narrower interval is the Estimate.
	CrossCheck *Estimate `json:"crossCheck,omitempty"`

	// Readings taken, and Missed ones that failed. Updates is how many values
	// the slowest sensor can have had in the window.
	Readings int   `json:"readings"`
	Missed   int   `json:"missed"`
	Updates  int64 `json:"updates"`
	Wraps    int   `json:"wraps"` // of counters
	// FirstError is the first failed reading's.
	FirstError string `json:"firstError,omitempty"`

	// Timeline has the mean power since the sample before (counters) or the
	// reading (gauges), at most 4096 samples.
	Timeline []Sample `json:"timeline,omitempty"`

	Warnings []string `json:"warnings,omitempty"`
}

// Sample of the power.
type Sample struct {
	Mono  int64   `json:"monoNs"` // CLOCK_MONOTONIC
	Power float64 `json:"powerW"`
}
