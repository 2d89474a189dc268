// SPDX-License-Identifier: Apache-2.0

package power

// Provenance says what was read and how accurate it can be.
type Provenance struct {
	Source string `json:"source"` // as in Config
	// Address of the source: a directory, HOST:PORT, URL, or device file.
	Address string `json:"address,omitempty"`
	// Protocol and its protection, such as "RMCP+, cipher suite 17".
	Protocol string `json:"protocol,omitempty"`
	// Device and Firmware as the source reports them.
	Device   string `json:"device,omitempty"`
	Firmware string `json:"firmware,omitempty"`
	// Covers is what the power includes, and what it leaves out.
	Covers  string   `json:"covers,omitempty"`
	Sensors []Sensor `json:"sensors,omitempty"`
	// AccuracyPercent of a reading, 0 if not stated.
	AccuracyPercent float64 `json:"accuracyPercent,omitempty"`
	AccuracyFrom    From    `json:"accuracyFrom,omitempty"`
	// Interval is the requested time between readings, ns.
	Interval int64 `json:"intervalNs,omitempty"`
}

// Quantities of sensors.
const (
	Energy = "energy" // a counter
	Power  = "power"  // a gauge
)

// A Sensor is one of the sensors that are added up.
type Sensor struct {
	Name string `json:"name"`
	// Path is the file, OID, URL with property, or command that is read.
	Path     string `json:"path"`
	Quantity string `json:"quantity"` // Energy or Power
	Unit     string `json:"unit"`     // of one count at the source, such as "uJ" or "0.1 W"
	// ResolutionW or ResolutionJ is the smallest difference that a reading can show, or an
	// upper bound.
	ResolutionW    float64 `json:"resolutionW,omitempty"`
	ResolutionJ    float64 `json:"resolutionJ,omitempty"`
	ResolutionFrom From    `json:"resolutionFrom"`
	// UpdateInterval is the time between changes of the reading, or an upper bound, ns.
	UpdateInterval     int64 `json:"updateIntervalNs"`
	UpdateIntervalFrom From  `json:"updateIntervalFrom"`
	// Averages says that a reading is the mean since the reading before. If it is not, or if
	// that is not known, changes between updates are not seen.
	Averages bool `json:"averages,omitempty"`
	// WrapJ is where an energy counter wraps, 0 if not known.
	WrapJ float64 `json:"wrapJ,omitempty"`
}

// From is the origin of a figure.
type From string

// Origins of figures.
const (
	FromConfig   From = "config"   // written into the experiment
	FromSource   From = "source"   // reported by the sensor or defined by its protocol
	FromReadings From = "readings" // seen in the readings
	FromDefault  From = "default"  // assumed: a safe value for sensors of this kind
)

// Interval is a value with its bounds.
type Interval struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// Uncertainty has the parts of the half-width of the energy, in J. All but SamplingJ are
// bounds; SamplingJ is the half-width of a 95 % interval.
type Uncertainty struct {
	// ResolutionJ: readings are rounded, by at most one resolution.
	ResolutionJ float64 `json:"resolutionJ"`
	// EdgesJ: a reading is as old as the update interval, takes time, and does not fall on the
	// window's ends.
	EdgesJ float64 `json:"edgesJ"`
	// SamplingJ: samples that are not averages miss what is between them.
	SamplingJ float64 `json:"samplingJ"`
	// GapsJ: readings that failed.
	GapsJ float64 `json:"gapsJ"`
	// AccuracyJ: the sensor's stated accuracy; 0 if not stated.
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

// An Estimate is an estimate of the window's energy.
type Estimate struct {
	Method      string      `json:"method"` // Counter or Samples
	Energy      Interval    `json:"energyJ"`
	Power       Interval    `json:"powerW"` // mean over the window
	Uncertainty Uncertainty `json:"uncertainty"`
}

// Result is the power over a window of time.
type Result struct {
	Provenance Provenance `json:"provenance"`
	// StartMono is CLOCK_MONOTONIC at the window's start, ns. Duration is its length.
	StartMono int64 `json:"startMonoNs"`
	Duration  int64 `json:"durationNs"`

	// NotMeasured is why there is no Estimate; "" if there is one.
	NotMeasured string `json:"notMeasured,omitempty"`
	// Needed is a window that is long enough, ns, if the window's length is the reason for
	// NotMeasured or a warning.
	Needed int64 `json:"neededDurationNs,omitempty"`

	*Estimate
	// CrossCheck is the estimate from the source's other sensors, if it has both counters and
	// gauges. The narrower interval is the Estimate.
	CrossCheck *Estimate `json:"crossCheck,omitempty"`

	// Readings is the number taken, and Missed the number that failed. Updates is how many
	// values the slowest sensor can have had in the window.
	Readings int   `json:"readings"`
	Missed   int   `json:"missed"`
	Updates  int64 `json:"updates"`
	Wraps    int   `json:"wraps"` // of counters
	// FirstError is that of the first failed reading.
	FirstError string `json:"firstError,omitempty"`

	// Timeline has the mean power since the sample before (counters) or the reading (gauges),
	// at most 4096 samples.
	Timeline []Sample `json:"timeline,omitempty"`

	Warnings []string `json:"warnings,omitempty"`
}

// Sample of the power.
type Sample struct {
	Mono  int64   `json:"monoNs"` // CLOCK_MONOTONIC
	Power float64 `json:"powerW"`
}
